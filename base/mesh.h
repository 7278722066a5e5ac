#pragma once

/* The members of a run and their coordinates. A mesh has `replicas` copies of a pipeline of `ranks` ranks. Member m is
   rank m % ranks of replica m / ranks. All replicas run the same program, on different microbatches; the program knows
   only ranks. */
typedef struct Mesh {
    int ranks, replicas;
} Mesh;

static inline int mesh_size(Mesh mesh) { return mesh.ranks * mesh.replicas; }
static inline int mesh_rank(Mesh mesh, int member) { return member % mesh.ranks; }
static inline int mesh_replica(Mesh mesh, int member) { return member / mesh.ranks; }
static inline int mesh_member(Mesh mesh, int rank, int replica) { return replica * mesh.ranks + rank; }

typedef struct MemberName {
    char text[48];
} MemberName;

/* "rank 1", or "rank 1 of replica 2" if there are several replicas. A signal handler may call it. */
MemberName mesh_name(Mesh mesh, int member);
