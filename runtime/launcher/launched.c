#include "runtime/launcher/launched.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The environment variables with the number of processes: OpenMPI sets the first one; MPICH, its derivatives and srun
   --mpi=pmi2 set the second one. */
static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
static const char *const numbers[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
static const char *const places[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};

#define FIRST_OF(names, otherwise) first_of(names, sizeof(names) / sizeof *(names), otherwise)
static int first_of(const char *const *names, size_t count, int otherwise)
{
    for (size_t i = 0; i < count; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return otherwise;
}

/* mpirun may start a single process: the result is then 1, and later checks report a wrong number of processes. Slurm
   sets its variables even in the shell of a job, so without the variables of `counts` only a step of several tasks
   counts as launched. */
int launched_processes(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return FIRST_OF(counts, tasks && atoi(tasks) > 1 && getenv("SLURM_PROCID") ? atoi(tasks) : 0);
}

int launched_number(void) { return launched_processes() > 0 ? FIRST_OF(numbers, -1) : -1; }

int launched_place_on_machine(void) { return FIRST_OF(places, 0); }

/* --- the other processes --- */

static FILE *open_of(const char *process, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    return fopen(path, "r");
}

/* The number that process `process` (an entry of /proc) has in the MPI job `job`. -1: it is not part of the job, or
   cannot be read. */
static int number_of(const char *process, const char *job)
{
    static const char job_name[] = "PMIX_NAMESPACE=", number_name[] = "OMPI_COMM_WORLD_RANK=";
    char *line = NULL;
    size_t capacity = 0;
    int number = -1;
    bool same = false;
    FILE *stream = open_of(process, "environ");
    while (stream && getdelim(&line, &capacity, '\0', stream) > 0) {
        if (strncmp(line, number_name, sizeof number_name - 1) == 0)
            number = atoi(line + sizeof number_name - 1);
        same |= strncmp(line, job_name, sizeof job_name - 1) == 0 && strcmp(line + sizeof job_name - 1, job) == 0;
    }
    free(line);
    if (stream)
        fclose(stream);
    return same ? number : -1;
}

static bool is_stopped(const char *process)
{
    char line[512] = "";
    FILE *stream = open_of(process, "stat");
    if (stream) {
        if (!fgets(line, sizeof line, stream))
            *line = '\0';
        fclose(stream);
    }
    const char *name_end = strrchr(line, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

void launched_missing(LaunchedName *name, const void *context, char *text, size_t size)
{
    const int count = launched_processes();
    const char *job = getenv("PMIX_NAMESPACE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    enum { UNSEEN, MOVES = -1 }; /* values of found[number of a process]; > 0: it is stopped, and this is its id */
    *text = '\0';
    DIR *processes = job && count > 0 ? opendir("/proc") : NULL;
    int *found = processes ? calloc((size_t)count, sizeof *found) : NULL;
    for (struct dirent *entry; found && (entry = readdir(processes));) {
        const int number = isdigit((unsigned char)*entry->d_name) ? number_of(entry->d_name, job) : -1;
        if (number < 0 || number >= count)
            continue;
        if (is_stopped(entry->d_name))
            found[number] = atoi(entry->d_name);
        else if (found[number] == UNSEEN)
            found[number] = MOVES;
    }
    for (int i = 0; found && i < count; i++) {
        const size_t used = strlen(text);
        const char *separator = used ? ", " : ": ";
        char member[64];
        name(context, i, member, sizeof member);
        if (found[i] > 0)
            snprintf(text + used, size - used, "%s%s is stopped (process %d)", separator, member, found[i]);
        else if (found[i] == UNSEEN && here && atoi(here) == count)
            snprintf(text + used, size - used, "%s%s has ended", separator, member);
    }
    free(found);
    if (processes)
        closedir(processes);
}

void launched_await_reader(void)
{
    for (int file = STDOUT_FILENO, tries = 0; file <= STDERR_FILENO; file++) {
        struct stat about;
        int unread = 0;
        if (fstat(file, &about) != 0 || !S_ISFIFO(about.st_mode))
            continue;
        for (; tries < 2000 && ioctl(file, FIONREAD, &unread) == 0 && unread > 0; tries++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
