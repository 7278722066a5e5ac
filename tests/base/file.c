/* Files are written whole or not at all, read at their size, and kept apart. */

#include "base/arena.h"
#include "base/file.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static char folder[] = "/tmp/base.XXXXXX";

static int entries(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

static void assert_content(const char *path, const char *expected)
{
    Arena arena = {0};
    Error error;
    char *text;
    size_t size;
    assert_int_equal(file_read(path, &arena, &text, &size, &error), STATUS_OK);
    assert_string_equal(text, expected);
    arena_free(&arena);
}

TEST(files_appear_whole_or_not_at_all)
{
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    OutputFile file;
    Error error;
    assert_int_equal(file_begin(path, &file, &error), STATUS_OK);
    fputs("first", file.stream);
    assert_int_equal(file_finish(&file, &error), STATUS_OK);
    assert_content(path, "first");

    assert_int_equal(file_begin(path, &file, &error), STATUS_OK);
    fputs("given up", file.stream);
    fflush(file.stream);
    assert_content(path, "first");
    file_abandon(&file);
    file_abandon(&file);
    assert_content(path, "first");
    assert_int_equal(entries(), 1);

    /* Simulates a full disk by a limit on the size of files. */
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1000;
    assert_int_equal(file_begin(path, &file, &error), STATUS_OK);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 5000; i++)
        putc('x', file.stream);
    const Status full = file_finish(&file, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(full, STATUS_RUN_FAILED);
    assert_non_null(strstr(error.text, "out"));
    assert_non_null(strstr(error.text, "File too large"));
    assert_content(path, "first");
    assert_int_equal(entries(), 1);
}

/* A symbolic link stays a link, and the file that it points to is replaced. */
TEST(links_are_followed)
{
    char path[200], link[200];
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("out", link), 0);
    OutputFile file;
    Error error;
    assert_int_equal(file_begin(link, &file, &error), STATUS_OK);
    fputs("behind the link", file.stream);
    assert_int_equal(file_finish(&file, &error), STATUS_OK);
    struct stat there;
    assert_int_equal(lstat(link, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    assert_content(path, "behind the link");
    assert_int_equal(unlink(link), 0);
}

/* file_check leaves no file. It does not open a pipe: whoever reads the pipe would take the closing as the end of the
   data. */
TEST(a_check_opens_no_pipe)
{
    char path[200];
    snprintf(path, sizeof path, "%s/pipe", folder);
    Error error;
    const int before = entries();
    assert_int_equal(mkfifo(path, 0600), 0);
    /* the check must not open the pipe: that would wait for a reader */
    assert_int_equal(file_check(path, &error), STATUS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_check(path, &error), STATUS_OK);
    assert_int_equal(entries(), before);
    assert_int_equal(file_check("-", &error), STATUS_OK);
    assert_int_equal(file_check("/nowhere/at/all", &error), STATUS_RUN_FAILED);
    assert_int_equal(file_check(folder, &error), STATUS_RUN_FAILED);
    assert_string_equal(strrchr(error.text, ':'), ": Is a directory");
}

/* Hides /proc, then writes a file. A file that was opened without a name (O_TMPFILE) gets its name through /proc, so
   without /proc the file has a temporary name from the start. Returns 0; 1: the writing failed; 77: /proc cannot be
   hidden. */
static int write_without_proc(const char *path)
{
    OutputFile file;
    Error error;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        umount2("/proc", MNT_DETACH) != 0)
        return 77;
    if (file_begin(path, &file, &error) != STATUS_OK)
        return 1;
    fputs("no /proc", file.stream);
    return file_finish(&file, &error) == STATUS_OK ? 0 : 1;
}

TEST(a_machine_without_proc_will_do)
{
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    const pid_t child = fork();
    if (child == 0)
        _exit(write_without_proc(path));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("/proc cannot be taken away here: skipped\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_content(path, "no /proc");
    assert_int_equal(entries(), 1);
}

/* A process that is killed while it writes leaves no file, if the file system supports files without names. */
TEST(of_a_killed_process_nothing_is_left)
{
    char path[200];
    const int nameless = open(folder, O_TMPFILE | O_WRONLY, 0600);
    if (nameless < 0) {
        print_message("no files without names in %s: skipped\n", folder);
        skip();
    }
    close(nameless);
    snprintf(path, sizeof path, "%s/killed", folder);
    const int before = entries();
    const pid_t child = fork();
    if (child == 0) {
        OutputFile file;
        Error error;
        if (file_begin(path, &file, &error) == STATUS_OK && fputs("half", file.stream) >= 0 && fflush(file.stream) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(entries(), before);
}

/* The functions below replace those of the C library. They hide /proc on request, and count the folders that are
   synced. */
static bool no_proc;
static int folders_synced;

int access(const char *path, int mode)
{
    if (no_proc && strncmp(path, "/proc/", 6) == 0) {
        errno = ENOENT;
        return -1;
    }
    return faccessat(AT_FDCWD, path, mode, 0);
}

int fsync(int descriptor)
{
    struct stat there;
    folders_synced += fstat(descriptor, &there) == 0 && S_ISDIR(there.st_mode);
    return (int)syscall(SYS_fsync, descriptor);
}

static void write_whole(const char *path, const char *text)
{
    OutputFile file;
    Error error;
    assert_int_equal(file_begin(path, &file, &error), STATUS_OK);
    fputs(text, file.stream);
    assert_int_equal(file_finish(&file, &error), STATUS_OK);
}

/* One process may write the same file several times at once. The umask decides who may read a new file, with and
   without a temporary name. */
TEST(one_process_writes_a_file_several_times)
{
    enum { WRITERS = 5 };
    char path[200], text[2] = "0";
    OutputFile files[WRITERS];
    Error error;
    struct stat there;
    snprintf(path, sizeof path, "%s/out", folder);
    const int before = entries();
    const mode_t mask = umask(027);
    for (int w = 0; w < WRITERS; w++) {
        no_proc = w % 2 == 0;
        assert_int_equal(file_begin(path, &files[w], &error), STATUS_OK);
        fprintf(files[w].stream, "%d", w);
    }
    no_proc = false;
    umask(mask);
    for (int w = 0; w < WRITERS; w++, text[0]++) {
        assert_int_equal(file_finish(&files[w], &error), STATUS_OK);
        assert_content(path, text);
        assert_int_equal(stat(path, &there), 0);
        assert_int_equal(there.st_mode & 0777, 0640);
    }
    assert_int_equal(entries(), before);
}

TEST(a_new_name_is_synced)
{
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    folders_synced = 0;
    write_whole(path, "synced");
    assert_int_equal(folders_synced, 1);
}

/* Starts a process that begins a file under a temporary name, writes a byte to `pipe`, and stops. When it is continued,
   it finishes the file. */
static pid_t start_writer(const char *path, int pipe[2])
{
    assert_int_equal(pipe2(pipe, O_CLOEXEC), 0);
    no_proc = true;
    const pid_t child = fork();
    if (child == 0) {
        OutputFile file;
        Error error;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the writer ends with the test program, also if a test fails */
        if (file_begin(path, &file, &error) != STATUS_OK || file.nameless || fputs("half", file.stream) < 0 ||
            fflush(file.stream) != 0 || write(pipe[1], "", 1) != 1)
            _exit(1);
        raise(SIGSTOP);
        _exit(file_finish(&file, &error) != STATUS_OK);
    }
    no_proc = false;
    char begun;
    close(pipe[1]);
    assert_int_equal(read(pipe[0], &begun, 1), 1);
    return child;
}

/* The next writer of a file removes the temporary file of a killed writer. It removes neither that of a live writer nor
   files with similar names. */
TEST(the_next_writer_cleans_up)
{
    char path[200], alike[4][220];
    int status, pipes[2][2];
    snprintf(path, sizeof path, "%s/out", folder);
    static const char *const names[] = {".out.dptmp.", ".out.dptmp.1234567", ".other.dptmp.123456", "out.dptmp.123456"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(alike[i], sizeof alike[i], "%s/%s", folder, names[i]);
        write_whole(alike[i], "alike");
    }
    const int before = entries();
    const pid_t live = start_writer(path, pipes[0]), killed = start_writer(path, pipes[1]);
    assert_int_equal(entries(), before + 2);
    kill(killed, SIGKILL);
    assert_int_equal(waitpid(killed, &status, 0), killed);
    assert_int_equal(entries(), before + 2);
    write_whole(path, "meanwhile");
    assert_content(path, "meanwhile");
    assert_int_equal(entries(), before + 1);
    assert_int_equal(waitpid(live, &status, WUNTRACED), live);
    kill(live, SIGCONT);
    assert_int_equal(waitpid(live, &status, 0), live);
    assert_int_equal(status, 0);
    assert_content(path, "half");
    assert_int_equal(entries(), before);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(unlink(alike[i]), 0);
    close(pipes[0][0]);
    close(pipes[1][0]);
}

/* Several processes write the same file at the same time: each finishes, and none removes what another is writing. */
TEST(writers_do_not_disturb_each_other)
{
    enum { WRITERS = 4, TIMES = 50 };
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    const int before = entries();
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        if ((children[w] = fork()) != 0)
            continue;
        Status status = STATUS_OK;
        for (int i = 0; i < TIMES && status == STATUS_OK; i++) {
            OutputFile file;
            Error error;
            no_proc = (w + i) % 2;
            status = file_begin(path, &file, &error);
            if (status == STATUS_OK && fputs("all of it", file.stream) >= 0)
                status = file_finish(&file, &error);
        }
        _exit((int)status);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(children[w], &status, 0), children[w]);
        assert_int_equal(status, 0);
    }
    assert_content(path, "all of it");
    assert_int_equal(entries(), before);
}

TEST(unwritable_and_unreadable_paths_are_named)
{
    OutputFile file;
    Error error;
    Arena arena = {0};
    char *text;
    size_t size;
    assert_int_equal(file_begin("/nowhere/at/all", &file, &error), STATUS_RUN_FAILED);
    assert_string_equal(error.text, "cannot write /nowhere/at/all: No such file or directory");
    /* an empty path fails, although a temporary file in the same folder could be opened */
    assert_int_equal(file_begin("", &file, &error), STATUS_RUN_FAILED);
    assert_int_equal(file_read("/nowhere/at/all", &arena, &text, &size, &error), STATUS_BAD_INPUT);
    assert_int_equal(file_read(folder, &arena, &text, &size, &error), STATUS_BAD_INPUT);
    assert_non_null(strstr(error.text, "directory"));
    assert_int_equal(file_read("/dev/zero", &arena, &text, &size, &error), STATUS_BAD_INPUT);
    assert_string_equal(error.text, "/dev/zero: the input has not ended after 256 MiB; put larger data into a file");
    arena_free(&arena);
    /* writing to /dev/full fails, and it stays a device */
    assert_int_equal(file_begin("/dev/full", &file, &error), STATUS_OK);
    fputs("x", file.stream);
    assert_int_equal(file_finish(&file, &error), STATUS_RUN_FAILED);
    assert_non_null(strstr(error.text, "No space left"));
    struct stat there;
    assert_int_equal(stat("/dev/full", &there), 0);
    assert_true(S_ISCHR(there.st_mode));
    arena_free(&arena);
}

/* Size of this process's address space in bytes. */
static size_t address_space(void)
{
    size_t pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "%zu", &pages), 1);
    fclose(stream);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(a_file_is_read_at_its_size)
{
    enum { SIZE = 1 << 28, MARGIN = 1 << 26 };
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(ftruncate(fileno(stream), SIZE), 0);
    fclose(stream);
    const size_t used = address_space();
    if (used > (size_t)1 << 40)
        skip(); /* a sanitizer: its shadow memory takes terabytes of address space, so a limit on it shows nothing */
    struct rlimit before, small;
    getrlimit(RLIMIT_AS, &before);
    small = before;
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    if (setjmp(exhausted) != 0)
        fail_msg("file_read jumped");
    Error error;
    char *text = NULL;
    size_t size = 0;
    small.rlim_cur = used + SIZE + MARGIN;
    setrlimit(RLIMIT_AS, &small);
    const Status fits = file_read(path, &arena, &text, &size, &error);
    arena_free(&arena);
    arena.exhausted = &exhausted;
    small.rlim_cur = used + SIZE / 2;
    setrlimit(RLIMIT_AS, &small);
    const Status fits_not = file_read(path, &arena, &text, &size, &error);
    setrlimit(RLIMIT_AS, &before);
    arena_free(&arena);
    assert_int_equal(fits, STATUS_OK);
    assert_int_equal(size, SIZE);
    assert_int_equal(fits_not, STATUS_NO_MEMORY);
    assert_non_null(strstr(error.text, "/out: no memory to read it"));
}

TEST(outputs_are_kept_apart)
{
    char path[200], other_name[250];
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(other_name, sizeof other_name, "%s/../%s/./out", folder, strrchr(folder, '/') + 1);
    OutputFile file;
    Error error;
    assert_int_equal(file_begin(path, &file, &error), STATUS_OK);
    assert_int_equal(file_finish(&file, &error), STATUS_OK);
    const char *const outputs[] = {NULL, "-", "/nowhere/new", other_name}, *const inputs[] = {"-", NULL, "/dev/null",
                                                                                              path};
    assert_int_equal(file_keep_apart(outputs, 3, inputs, 4, &error), STATUS_OK);
    assert_int_equal(file_keep_apart(outputs, 4, inputs, 3, &error), STATUS_OK);
    assert_int_equal(file_keep_apart(outputs, 4, inputs, 4, &error), STATUS_BAD_USAGE);
    assert_non_null(strstr(error.text, "is an input"));
    assert_int_equal(file_keep_apart((const char *const[]){"/dev/null", "/dev/null", "-", "-"}, 4, inputs, 4, &error),
                     STATUS_OK);
    assert_int_equal(file_keep_apart((const char *const[]){"/nowhere/new", NULL, "/nowhere/new"}, 3, inputs, 4, &error),
                     STATUS_BAD_USAGE);
    assert_non_null(strstr(error.text, "two outputs would go to"));
    /* none of these files exists yet; new_one and new_other are two paths of the same file */
    char new_one[220], new_other[270], elsewhere[250];
    snprintf(new_one, sizeof new_one, "%s/new", folder);
    snprintf(new_other, sizeof new_other, "%s/../%s//new", folder, strrchr(folder, '/') + 1);
    snprintf(elsewhere, sizeof elsewhere, "%s/../new", folder);
    assert_int_equal(file_keep_apart((const char *const[]){new_one, new_other}, 2, NULL, 0, &error), STATUS_BAD_USAGE);
    assert_int_equal(file_keep_apart((const char *const[]){new_one, elsewhere}, 2, NULL, 0, &error), STATUS_OK);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    const int failures = test_program("file", NULL, NULL);
    char path[200];
    snprintf(path, sizeof path, "%s/out", folder);
    unlink(path);
    rmdir(folder);
    return failures;
}
