/* Counts, and delays, what a process asks of a file system; file_system_calls.py builds it.

   Preloaded, it stands before libc's functions. Only paths below $CALLS_BELOW count. The counts are
   in a page that is mapped from the file $CALLS_COUNTS, so a process, its threads, its children
   and whoever reads that file share them.

   $CALLS_META_US   each counted call waits so many microseconds first
   $CALLS_READ_US   so does each read of a file that was opened below $CALLS_BELOW
   $CALLS_LOCKS     "none": flock fails with ENOSYS, as where a file system has no locks;
                    "local": it succeeds without excluding anyone, as where locks stay on a node */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the order of KINDS in file_system_calls.py. */
enum { OPEN, STAT, RENAME, UNLINK, MKDIR, LINK, LIST, FSYNC, READLINK, READ, BYTES, KINDS };
enum { DESCRIPTORS = 1 << 16, PAGE = 4096 };

static _Atomic unsigned long *counts; /* of each kind; NULL before `start` and without $CALLS_* */
static const char *below;
static size_t below_length;
static unsigned meta_us, read_us;
static const char *locks;
static _Atomic char ours[DESCRIPTORS]; /* whether a descriptor is of a file below $CALLS_BELOW */

#define REAL(result, name, parameters)                                                             \
    static result(*real) parameters;                                                               \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name)

static unsigned microseconds(const char *name) {
    const char *value = getenv(name);
    return value ? (unsigned)strtoul(value, NULL, 10) : 0;
}

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("CALLS_COUNTS");
    below = getenv("CALLS_BELOW");
    locks = getenv("CALLS_LOCKS");
    meta_us = microseconds("CALLS_META_US");
    read_us = microseconds("CALLS_READ_US");
    if (!file || !below) return;
    below_length = strlen(below);
    int descriptor = open(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) abort();
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (page == MAP_FAILED) abort();
    counts = page;
}

static int is_below(const char *path) {
    return counts && path && !strncmp(path, below, below_length);
}

static void count(int kind, unsigned delay) {
    counts[kind]++;
    if (delay) usleep(delay);
}

static void asked(int kind, const char *path) {
    if (is_below(path)) count(kind, meta_us);
}

static int opened(int descriptor, const char *path) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) ours[descriptor] = is_below(path);
    return descriptor;
}

static int is_ours(int descriptor) {
    return counts && descriptor >= 0 && descriptor < DESCRIPTORS && ours[descriptor];
}

#define MODE                                                                                       \
    mode_t mode = 0;                                                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

#define OPENS(name)                                                                                \
    int name(const char *path, int flags, ...) {                                                   \
        REAL(int, name, (const char *, int, ...));                                                 \
        MODE asked(flags & O_DIRECTORY ? LIST : OPEN, path);                                       \
        return opened(real(path, flags, mode), path);                                              \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name)                                                                             \
    int name(int folder, const char *path, int flags, ...) {                                       \
        REAL(int, name, (int, const char *, int, ...));                                            \
        MODE asked(flags & O_DIRECTORY ? LIST : OPEN, path);                                       \
        return opened(real(folder, path, flags, mode), path);                                      \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

#define OPENS_STREAM(name)                                                                         \
    FILE *name(const char *path, const char *mode) {                                               \
        REAL(FILE *, name, (const char *, const char *));                                          \
        asked(OPEN, path);                                                                         \
        FILE *stream = real(path, mode);                                                           \
        if (stream) opened(fileno(stream), path);                                                  \
        return stream;                                                                             \
    }
OPENS_STREAM(fopen)
OPENS_STREAM(fopen64)

int close(int descriptor) {
    REAL(int, close, (int));
    if (descriptor >= 0 && descriptor < DESCRIPTORS) ours[descriptor] = 0;
    return real(descriptor);
}

#define STATS(name, kind)                                                                          \
    int name(const char *path, struct kind *found) {                                               \
        REAL(int, name, (const char *, struct kind *));                                            \
        asked(STAT, path);                                                                         \
        return real(path, found);                                                                  \
    }
STATS(stat, stat)
STATS(lstat, stat)
STATS(stat64, stat64)
STATS(lstat64, stat64)

#define STATS_OLD(name, kind)                                                                      \
    int name(int version, const char *path, struct kind *found) {                                  \
        REAL(int, name, (int, const char *, struct kind *));                                       \
        asked(STAT, path);                                                                         \
        return real(version, path, found);                                                         \
    }
STATS_OLD(__xstat, stat)
STATS_OLD(__lxstat, stat)
STATS_OLD(__xstat64, stat64)
STATS_OLD(__lxstat64, stat64)

#define STATS_AT(name, kind)                                                                       \
    int name(int folder, const char *path, struct kind *found, int flags) {                        \
        REAL(int, name, (int, const char *, struct kind *, int));                                  \
        asked(STAT, path);                                                                         \
        return real(folder, path, found, flags);                                                   \
    }
STATS_AT(fstatat, stat)
STATS_AT(fstatat64, stat64)

int access(const char *path, int mode) {
    REAL(int, access, (const char *, int));
    asked(STAT, path);
    return real(path, mode);
}

ssize_t readlink(const char *path, char *target, size_t size) {
    REAL(ssize_t, readlink, (const char *, char *, size_t));
    asked(READLINK, path);
    return real(path, target, size);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, (const char *, const char *));
    asked(RENAME, from);
    return real(from, to);
}

int unlink(const char *path) {
    REAL(int, unlink, (const char *));
    asked(UNLINK, path);
    return real(path);
}

int rmdir(const char *path) {
    REAL(int, rmdir, (const char *));
    asked(UNLINK, path);
    return real(path);
}

/* As shutil.rmtree does: the name is relative to a folder that was opened. */
int unlinkat(int folder, const char *name, int flags) {
    REAL(int, unlinkat, (int, const char *, int));
    if (is_ours(folder) || is_below(name)) count(UNLINK, meta_us);
    return real(folder, name, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, (const char *, mode_t));
    asked(MKDIR, path);
    return real(path, mode);
}

int link(const char *from, const char *to) {
    REAL(int, link, (const char *, const char *));
    asked(LINK, from);
    return real(from, to);
}

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, (const char *));
    asked(LIST, path);
    return real(path);
}

int fsync(int descriptor) {
    REAL(int, fsync, (int));
    if (is_ours(descriptor)) count(FSYNC, meta_us);
    return real(descriptor);
}

static ssize_t arrived(int descriptor, ssize_t bytes) {
    if (bytes > 0 && is_ours(descriptor)) counts[BYTES] += (unsigned long)bytes;
    return bytes;
}

ssize_t read(int descriptor, void *target, size_t size) {
    REAL(ssize_t, read, (int, void *, size_t));
    if (is_ours(descriptor)) count(READ, read_us);
    return arrived(descriptor, real(descriptor, target, size));
}

#define READS_AT(name, offset_type)                                                                \
    ssize_t name(int descriptor, void *target, size_t size, offset_type offset) {                  \
        REAL(ssize_t, name, (int, void *, size_t, offset_type));                                   \
        if (is_ours(descriptor)) count(READ, read_us);                                             \
        return arrived(descriptor, real(descriptor, target, size, offset));                        \
    }
READS_AT(pread, off_t)
READS_AT(pread64, off64_t)

int flock(int descriptor, int operation) {
    REAL(int, flock, (int, int));
    if (!locks) return real(descriptor, operation);
    if (!strcmp(locks, "local")) return 0;
    errno = ENOSYS;
    return -1;
}
