/* Starts MPI and makes a world of its processes. */
#include "runtime/transport/mpi.h"

#include "base/counted.h"
#include "runtime/launcher/launched.h"
#include "runtime/transport/limit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If Open MPI 4 has started all processes on this machine: settings that make messages between them fast. Settings of
   the user take precedence. */
static void set_defaults(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (strncmp(version, "Open MPI v4.", 12) != 0 || !all || !here || strcmp(all, here) != 0)
        return;
    setenv("OMPI_MCA_pml", "ob1", 0); /* no search for networks: MPI then starts in half the time */
    setenv("OMPI_MCA_btl", "self,vader", 0);
    /* Two copies through shared memory are faster than one by the kernel. If all pieces of a message are posted at
       once, a few calls of progress are enough to overlap it with computation. */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", 0);
}

/* Writes the number of processes on this machine to *processes. Returns whether they are more than the processors on
   which they may run; false if these are unknown. */
static bool is_crowded(int *processes)
{
    MPI_Comm here;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, processes);
    MPI_Allreduce(MPI_IN_PLACE, &allowed, sizeof allowed, MPI_BYTE, MPI_BOR, here);
    MPI_Comm_free(&here);
    return CPU_COUNT(&allowed) > 0 && *processes > CPU_COUNT(&allowed);
}

static Status wrong_processes(Mesh mesh, int processes, Error *error)
{
    MPI_Finalize();
    if (processes == 1 && launched_processes() > 1)
        return error_set(
            error, STATUS_BAD_USAGE,
            "%d processes were started, but not by the MPI that dprun was built with (or by srun without its PMI), so "
            "each is alone: use the mpirun of that MPI",
            launched_processes());
    char needed[160], other[48] = "";
    if (mesh.replicas > 1)
        snprintf(needed, sizeof needed, "%d replicas of this program's %s need %s", mesh.replicas,
                 counted((uint64_t)mesh.ranks, "rank").text, counted((uint64_t)mesh_size(mesh), "process").text);
    else
        snprintf(needed, sizeof needed, "this program has %s", counted((uint64_t)mesh.ranks, "rank").text);
    if (mesh.replicas == 1 && processes > mesh.ranks && processes % mesh.ranks == 0)
        snprintf(other, sizeof other, ", or dprun --replicas %d", processes / mesh.ranks);
    return error_set(error, STATUS_BAD_USAGE, "%s, but there %s %s: use mpirun -n %d%s", needed,
                     processes == 1 ? "is" : "are", counted((uint64_t)processes, "process").text, mesh_size(mesh),
                     other);
}

static Status start_mpi(const WorldConfig *config, World **members, Error *error)
{
    int provided = 0, processes = 0, process = 0, here = 0;
    set_defaults();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    if (processes != config->size)
        return wrong_processes(world_mesh(config), processes, error);
    if (provided < MPI_THREAD_SERIALIZED) {
        mpi_leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED, "this MPI was built without threads: use another MPI");
    }

    const bool crowded = is_crowded(&here);
    if (config->link.given && here < processes) {
        MPI_Finalize();
        return error_set(error, STATUS_BAD_USAGE,
                         "--link needs all %d processes on one machine, where they share a clock; %d of them %s here",
                         processes, here, here == 1 ? "is" : "are");
    }

    MpiWorld *world = calloc(1, sizeof *world);
    if (world)
        world->transfers = malloc(2 * (size_t)processes * sizeof *world->transfers);
    if (!world || !world->transfers || !mpi_link_prepare(world, config)) {
        mpi_leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED, "no memory for a world of %d ranks", processes);
    }
    const int number = config->map ? config->map[process] : process;
    world_init(&world->world, &world_mpi, config, number);
    world->crowded = crowded;
    pthread_mutex_init(&world->lock, NULL);
    MPI_Comm_split(MPI_COMM_WORLD, 0, number, &world->members);
    MPI_Comm_dup(world->members, &world->aside);
    MPI_Comm_dup(world->members, &world->times);
    MPI_Comm_set_errhandler(world->members, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world->aside, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world->times, MPI_ERRORS_RETURN);
    for (int member = 0; member < processes; member++)
        members[member] = NULL;
    members[number] = &world->world;
    mpi_start_pulse(world);
    return STATUS_OK;
}

Status mpi_open(const WorldConfig *config, World **members, Error *error)
{
    WorldConfig who = *config;
    if (launched_processes() != config->size)
        who.map = NULL;
    Limit limit = {.seconds = config->quiet_deadline, .words = "not all processes have started", .who = &who};
    limit_begin(&limit);
    const Status status = start_mpi(config, members, error);
    limit_end(&limit);
    return status;
}
