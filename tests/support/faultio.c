/* LD_PRELOAD shim: counts the I/O operations that change files under one folder and kills the process at the n-th.
 *
 * It sees what Python, Rust (safetensors) and C++ do alike, since all of them call libc.
 *   faultio_arm(folder, n, half): strike at operation n (0 = only count); half = write half of the bytes first.
 *   faultio_count(): operations so far.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static long strike_at, count;
static int write_half;

void faultio_arm(const char *path, long n, int half) {
    strncpy(folder, path, sizeof folder - 1);
    strike_at = n;
    write_half = half;
    count = 0;
}

long faultio_count(void) { return count; }

static int inside(const char *path) { return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0; }

static int inside_fd(int fd) {
    char link[64], path[4096];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int due(void) { return __sync_add_and_fetch(&count, 1) == strike_at; }

static void strike(void) {
    kill(getpid(), SIGKILL);
    pause();
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t size) {
    if (inside_fd(fd) && due()) {
        if (write_half && size > 1) NEXT(write)(fd, bytes, size / 2);
        strike();
    }
    return NEXT(write)(fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    if (inside_fd(fd) && due()) strike();
    return NEXT(writev)(fd, parts, n);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    if (inside_fd(fd) && due()) strike();
    return NEXT(pwrite64)(fd, bytes, size, offset);
}

int fsync(int fd) {
    if (inside_fd(fd) && due()) strike();
    return NEXT(fsync)(fd);
}

int ftruncate64(int fd, off64_t size) {
    if (inside_fd(fd) && due()) strike();
    return NEXT(ftruncate64)(fd, size);
}

int rename(const char *from, const char *to) {
    if (inside(to) && due()) strike();
    return NEXT(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) {
    if (inside(path) && due()) strike();
    return NEXT(mkdir)(path, mode);
}

int unlink(const char *path) {
    if (inside(path) && due()) strike();
    return NEXT(unlink)(path);
}

int unlinkat(int at, const char *path, int flags) {
    if ((inside(path) || inside_fd(at)) && due()) strike();
    return NEXT(unlinkat)(at, path, flags);
}

int rmdir(const char *path) {
    if (inside(path) && due()) strike();
    return NEXT(rmdir)(path);
}

static int changes(int flags) { return (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY; }

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                               \
        mode_t mode = 0;                                                       \
        if (flags & (O_CREAT | O_TMPFILE)) {                                   \
            va_list rest;                                                      \
            va_start(rest, flags);                                             \
            mode = va_arg(rest, mode_t);                                       \
            va_end(rest);                                                      \
        }                                                                      \
        if (inside(path) && changes(flags) && due()) strike();                 \
        return NEXT(name)(path, flags, mode);                                  \
    }

OPEN(open)
OPEN(open64)
