/* Reads the free memory from files that have the form of the kernel's, for both versions of control groups. */
#include "runtime/launcher/memory.h"
#include "tests/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB "1048576"
static const uint64_t mebibyte = 1 << 20;
static char root[] = "/tmp/memory.XXXXXX";

/* Writes a file, and makes the folders on its path. */
static void write_text(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *next = path + sizeof root; (next = strchr(next, '/')); next++) {
        *next = '\0';
        mkdir(path, 0700);
        *next = '/';
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

static void begin(const char *groups, const char *mounts)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    assert_int_equal(system(command), 0);
    write_text("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  123 kB\nMemAvailable:    8388608 kB\n");
    write_text("/proc/self/cgroup", groups);
    write_text("/proc/self/mountinfo", mounts);
}

static void expect_pools(size_t count, ...)
{
    const MemoryPools pools = memory_pools(root);
    va_list wanted;
    assert_int_equal(pools.count, count + 1);
    assert_string_equal(pools.pools[0].name, "");
    assert_int_equal(pools.pools[0].free, 8192 * mebibyte);
    va_start(wanted, count);
    for (size_t i = 1; i <= count; i++) {
        assert_string_equal(pools.pools[i].name, va_arg(wanted, const char *));
        assert_int_equal(pools.pools[i].free, (uint64_t)va_arg(wanted, int) * mebibyte);
    }
    va_end(wanted);
}

static const char mount_2[] = "25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
                              "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

/* Version 2: the process is in a group in a job in a slice. The job and the slice have limits; the process's own group
   has none. */
TEST(test_version_2)
{
    begin("0::/slice/job/task\n", mount_2);
    expect_pools(0);
    write_text("/sys/fs/cgroup/slice/job/task/memory.max", "max\n");
    write_text("/sys/fs/cgroup/slice/job/task/memory.high", "max\n");
    expect_pools(0);
    write_text("/sys/fs/cgroup/slice/job/memory.max", "2147483648\n");
    write_text("/sys/fs/cgroup/slice/job/memory.high", "max\n");
    write_text("/sys/fs/cgroup/slice/job/memory.current", "1073741824\n");
    expect_pools(1, "/slice/job", 1024);
    /* the kernel can free its cache of files, so the cache counts as free memory */
    write_text("/sys/fs/cgroup/slice/job/memory.stat",
               "anon 1\nfile 999999999\ninactive_file 104857600\nactive_file 209715200\n");
    expect_pools(1, "/slice/job", 1324);
    /* above memory.high the kernel slows the group down, so memory.high is a limit as well */
    write_text("/sys/fs/cgroup/slice/job/memory.high", "1610612736\n");
    expect_pools(1, "/slice/job", 812);
    write_text("/sys/fs/cgroup/slice/memory.high", "104857600\n");
    write_text("/sys/fs/cgroup/slice/memory.current", "209715200\n");
    expect_pools(2, "/slice/job", 812, "/slice", 0);
}

/* A container may have its own name space of control groups. Then the path of the group is "/", and its limit is at the
   mount point. */
TEST(test_container)
{
    begin("0::/\n", mount_2);
    write_text("/sys/fs/cgroup/memory.max", "3145728\n");
    write_text("/sys/fs/cgroup/memory.current", "1048576\n");
    expect_pools(1, "/", 2);
}

/* Version 1: in a container the paths of groups are those of the machine, but only the container's own group is
   mounted. */
TEST(test_version_1)
{
    static const char groups[] = "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc/task\n3:cpuset:/other\n0::/init\n";
    begin(groups, "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n"
                  "34 31 0:31 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
                  "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                  "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write_text("/sys/fs/cgroup/memory/task/memory.limit_in_bytes", "9223372036854771712\n");
    write_text("/sys/fs/cgroup/memory/task/memory.usage_in_bytes", "4096\n");
    expect_pools(0);
    write_text("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8388608\n");
    write_text("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n");
    write_text("/sys/fs/cgroup/memory/memory.stat",
               "active_file 5\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    expect_pools(1, "/docker/abc", 5);
    begin("4:memory:/moved/elsewhere\n", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    write_text("/sys/fs/cgroup/memory/memory.limit_in_bytes", MIB "\n");
    expect_pools(1, "/docker/abc", 1);
}

TEST(test_nothing_known)
{
    const MemoryPools pools = memory_pools("/no/such/folder");
    uint64_t bytes;
    const MemoryNeed need = memory_need(&pools, UINT64_MAX);
    assert_int_equal(pools.count, 0);
    assert_null(memory_shortage(&pools, &need, 1, &bytes));
    assert_true(memory_pools("").count >= 1); /* this machine */
}

/* The memory that all ranks of a pool (the machine or a control group) need is added up. Ranks outside of the pool do
   not count. */
TEST(test_shared)
{
    uint64_t bytes;
    begin("0::/job/a\n", mount_2);
    write_text("/sys/fs/cgroup/job/memory.max", "1073741824\n");
    write_text("/sys/fs/cgroup/job/a/memory.max", "629145600\n");
    write_text("/sys/fs/cgroup/job/b/memory.max", "629145600\n");
    const MemoryPools a = memory_pools(root);
    write_text("/proc/self/cgroup", "0::/job/b\n");
    const MemoryPools b = memory_pools(root);
    const MemoryNeed fits[] = {memory_need(&a, 500 * mebibyte), memory_need(&b, 500 * mebibyte)};
    assert_null(memory_shortage(&a, fits, 2, &bytes));
    const MemoryNeed job[] = {memory_need(&a, 520 * mebibyte), memory_need(&b, 520 * mebibyte)};
    assert_string_equal(memory_shortage(&a, job, 2, &bytes)->name, "/job");
    assert_int_equal(bytes, 1040 * mebibyte);
    assert_string_equal(memory_shortage(&b, job, 2, &bytes)->name, "/job");
    const MemoryNeed own[] = {memory_need(&a, 310 * mebibyte), memory_need(&b, 10 * mebibyte),
                              memory_need(&a, 310 * mebibyte)};
    assert_string_equal(memory_shortage(&a, own, 3, &bytes)->name, "/job/a");
    assert_int_equal(bytes, 620 * mebibyte);
    assert_null(memory_shortage(&b, own, 3, &bytes));
    const MemoryNeed machine[] = {memory_need(&a, 0), memory_need(&b, 8193 * mebibyte)};
    assert_string_equal(memory_shortage(&a, machine, 2, &bytes)->name, "");
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void) { return test_program("memory", set_up, tear_down); }
