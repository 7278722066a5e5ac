/* The same program gives the same numbers, bit for bit: in a second run, and with one process per rank under mpirun.
   Tests every schedule, the models gpt and mlp, several sizes, and replicas; compares the losses of every microbatch,
   gradient norms, and the weights after two steps.

   MPI takes far longer to start than these runs take. So mpirun starts this program once for each mesh, and the
   processes run all programs of that mesh one after the other. */

#include "tests/exec/run.h"
#include "tests/sanitized.h"
#include "tests/transport/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* A build with a sanitizer is slow and tests only small sizes, each schedule with one model. PATH: bytes of a path. */
enum { MOST_RANKS = SANITIZED ? 4 : 8, PATH = 200 };

/* The largest number of microbatches per step, as a multiple of the ranks. */
static int most_times(Mesh mesh) { return SANITIZED || mesh.ranks == 8 || mesh.replicas > 1 ? 2 : 3; }

static const char *const models[] = {"gpt", "mlp"};
static int first_model(size_t schedule) { return SANITIZED ? (int)(schedule % 2) : 0; }
static int last_model(size_t schedule) { return SANITIZED ? (int)(schedule % 2) : 1; }
static glob_t schedules;
static const char *build;
static char program[PATH_MAX], link_path[PATH_MAX];

/* --- one initialization of MPI for all runs of a process: these functions replace those of MPI; the library's own are
   called as PMPI_* --- */

int MPI_Init_thread(int *count, char ***arguments, int required, int *provided);
int MPI_Finalize(void);

static bool mpi_is_up;
static int mpi_threads;

int MPI_Init_thread(int *count, char ***arguments, int required, int *provided)
{
    int (*initialize)(int *, char ***, int, int *);
    *(void **)&initialize = dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
    const int status = mpi_is_up ? 0 : initialize(count, arguments, required, &mpi_threads);
    mpi_is_up = true;
    *provided = mpi_threads;
    return status;
}

int MPI_Finalize(void) { return 0; }

static void end_mpi(void)
{
    int (*finalize)(void);
    *(void **)&finalize = dlsym(RTLD_DEFAULT, "PMPI_Finalize");
    if (mpi_is_up)
        finalize();
}

/* --- runs --- */

typedef struct Job {
    uint32_t microbatches;
    FILE *losses;
} Job;

static void on_step(void *context, const StepReport *report)
{
    const Job *job = context;
    fprintf(job->losses, "step %d: loss %a, norm %a\n", (int)report->step, report->loss, report->gradient_norm);
    for (uint32_t m = 0; m < job->microbatches; m++)
        fprintf(job->losses, "%a\n", report->losses[m]);
}

/* Trains for two steps. Writes what rank 0 reports to PROGRAM.MODEL.NAME.losses, and the weights to
   PROGRAM.MODEL.NAME.weights. */
static void train(const char *path, int replicas, const char *model, const char *name)
{
    char losses[2 * PATH], weights[2 * PATH], copies[32];
    snprintf(copies, sizeof copies, "--replicas=%d", replicas);
    snprintf(losses, sizeof losses, "%s.%s.%s.losses", path, model, name);
    snprintf(weights, sizeof weights, "%s.%s.%s.weights", path, model, name);
    char *arguments[] = {
        "dprun",      "--model", (char *)model,       "--set",   "hidden=16", "--set",      "heads=2", "--set",
        "sequence=8", "--set",   "microbatch_size=2", "--steps", "2",         "--deadline", "60",      "--save",
        weights,      copies,    (char *)path,        NULL};
    Run run;
    run_load(&run, arguments);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    Job job = {run.loaded.replicas * run.loaded.program->microbatches,
               fopen(rank && strcmp(rank, "0") != 0 ? "/dev/null" : losses, "w")};
    assert_non_null(job.losses);
    run_to_end(&run, &(SessionHooks){.observer = {.context = &job, .step = on_step}});
    assert_int_equal(fclose(job.losses), 0);
}

static void program_path(char path[PATH], const char *folder, size_t schedule, Mesh mesh, int times)
{
    const char *name = strrchr(schedules.gl_pathv[schedule], '/') + 1;
    snprintf(path, PATH, "%s/%s.%d.%d.bin", folder, name, mesh.ranks, times * mesh.ranks);
}

static void train_all(const char *folder, Mesh mesh, const char *name)
{
    char path[PATH];
    for (size_t i = 0; i < schedules.gl_pathc; i++)
        for (int times = 2; times <= most_times(mesh); times++) {
            program_path(path, folder, i, mesh, times);
            for (int m = first_model(i); m <= last_model(i); m++)
                train(path, mesh.replicas, models[m], name);
        }
}

/* --- comparison --- */

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[4 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    const int status = system(command);
    if (status != 0)
        fail_msg("wait status %#x of: %s", (unsigned)status, command);
}

static size_t read_file(const char *path, const char *model, const char *name, const char *kind, char **bytes)
{
    char full[2 * PATH];
    size_t size = 0;
    snprintf(full, sizeof full, "%s.%s.%s.%s", path, model, name, kind);
    FILE *from = fopen(full, "r"), *to = open_memstream(bytes, &size);
    if (!from)
        fail_msg("%s: %s", full, strerror(errno));
    assert_non_null(to);
    for (int c; (c = getc(from)) != EOF;)
        putc(c, to);
    fclose(from);
    fclose(to);
    return size;
}

static void compare(const char *path, const char *model, const char *one, const char *other)
{
    static const char *const kinds[] = {"losses", "weights"};
    for (int i = 0; i < 2; i++) {
        char *first, *second;
        const size_t size = read_file(path, model, one, kinds[i], &first),
                     other_size = read_file(path, model, other, kinds[i], &second);
        if (!size || other_size != size || memcmp(first, second, size) != 0)
            fail_msg("%s, %s: the %s of %s and %s differ", path, model, kinds[i], one, other);
        free(first);
        free(second);
    }
}

static void same_numbers(void **state)
{
    const Mesh mesh = *(const Mesh *)*state;
    const bool mpi = mpirun_is_there();
    char folder[] = "/tmp/transports.XXXXXX", path[PATH];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < schedules.gl_pathc; i++)
        for (int times = 2; times <= most_times(mesh); times++) {
            program_path(path, folder, i, mesh, times);
            shell("%s/dpc --ranks %d --microbatches %d %s -o %s", build, mesh.ranks, times * mesh.ranks,
                  schedules.gl_pathv[i], path);
        }
    train_all(folder, mesh, "local");
    train_all(folder, mesh, "again");
    if (mpi)
        shell("%s -n %d %s %s %d %d", mpirun_command(), mesh_size(mesh), program, folder, mesh.ranks, mesh.replicas);
    else
        print_message("no mpirun: only compared with itself\n");
    for (size_t i = 0; i < schedules.gl_pathc; i++)
        for (int times = 2; times <= most_times(mesh); times++) {
            program_path(path, folder, i, mesh, times);
            for (int m = first_model(i); m <= last_model(i); m++) {
                compare(path, models[m], "local", "again");
                if (mpi)
                    compare(path, models[m], "local", "mpi");
            }
        }
    shell("rm -r %s", folder);
}

int main(int count, char **arguments)
{
    build = getenv("BUILD") ? getenv("BUILD") : "build";
    if (glob("schedules/*.dps", 0, NULL, &schedules) != 0) {
        fprintf(stderr, "no schedules/*.dps here: run from the top folder\n");
        return 1;
    }
    if (count == 4) {
        train_all(arguments[1], (Mesh){.ranks = atoi(arguments[2]), .replicas = atoi(arguments[3])}, "mpi");
        end_mpi();
        globfree(&schedules);
        return 0;
    }
    if (mpirun_is_there() && !link_plugin(program, link_path))
        return 1;
    static Mesh meshes[] = {{2, 1}, {4, 1}, {2, 2}, {2, 3}, {8, 1}};
    const struct CMUnitTest tests[] = {
        {.name = "2 ranks", .test_func = same_numbers, .initial_state = &meshes[0]},
        {.name = "4 ranks", .test_func = same_numbers, .initial_state = &meshes[1]},
        {.name = "2 replicas of 2 ranks", .test_func = same_numbers, .initial_state = &meshes[2]},
        {.name = "3 replicas of 2 ranks", .test_func = same_numbers, .initial_state = &meshes[3]},
        {.name = "8 ranks", .test_func = same_numbers, .initial_state = &meshes[4]},
    };
    const int failures = _cmocka_run_group_tests("transports", tests, MOST_RANKS == 8 ? 5 : 3, NULL, NULL);
    globfree(&schedules);
    return failures != 0;
}
