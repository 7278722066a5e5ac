#include "base/mesh.h"

#include <stdio.h>

MemberName mesh_name(Mesh mesh, int member)
{
    MemberName name;
    if (mesh.replicas > 1)
        snprintf(name.text, sizeof name.text, "rank %d of replica %d", mesh_rank(mesh, member),
                 mesh_replica(mesh, member));
    else
        snprintf(name.text, sizeof name.text, "rank %d", member);
    return name;
}
