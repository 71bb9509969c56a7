/* LD_PRELOAD shim: what changes files under one folder can be made to fail, or to kill the process, at the n-th time.
 *
 * It sees what Python, Rust (safetensors) and C++ do alike, since all of them call libc.
 *   faultio_arm(folder, n, how, error, sticky): strike at operation n (0 = only count).
 *     how: 0 kill; 1 write half of the bytes, then kill; 2 fail with `error`; 3 write half, then fail at the next one.
 *     4, 5, 6: the write says that all is well, but only half is written, zeros are, or one bit is another.
 *     sticky: every later operation fails, too. A full disk still lets delete, rename and cut off; EINTR only comes
 *     where POSIX allows it, EBUSY only where something is renamed or deleted.
 *   faultio_count(): operations so far. faultio_struck(): those of them that failed.
 *   faultio_can_strike(n, how, error): whether that does something at operation n of those counted that no other
 *     strike does: an error that such an operation may have, half of a write of several bytes.
 *
 * For whole programs, from outside, under the folder $FAULTIO_FOLDER:
 *   $FAULTIO_FULL        while the file of this name exists, the disk is full (ENOSPC), as if others took what is let go
 *                        of it: room is only what this process frees of the reserve, or what it wrote since and deletes
 *   $FAULTIO_FILL_AT     numbers, `20,30`: this process makes that file at its n-th write to metrics.jsonl
 *   $FAULTIO_FREE        a file with the number of bytes that the disk says are free
 *   $FAULTIO_NO_FLOCK    no flock (ENOLCK)
 *   $FAULTIO_NO_RENAME   folders cannot be renamed (ENOSYS)
 *   $FAULTIO_NO_FSYNC    folders cannot be synced (EINVAL)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum how { KILL, HALF_KILL, FAIL, HALF_FAIL, LIE_SHORT, LIE_ZEROS, LIE_FLIP };
enum kind { WRITE, SYNC, GROW, CUT, MAKE, OPEN, MOVE, REMOVE };
enum verdict { PASS, REFUSE, HALF, LIE };

static char folder[4096];
static long strike_at, count, struck;
static struct { char kind, is_long; } counted[4096]; /* the first operations */
static int how, error_number, sticky;

static const char *outer, *full_flag, *fill_at, *free_file;
static long metrics_written;
static int no_flock, no_rename, no_fsync;
static long room, most_room; /* bytes that a full disk still takes from this process; at most what the reserve freed */

__attribute__((constructor)) static void look_outside(void) {
    outer = getenv("FAULTIO_FOLDER");
    if (!outer) return;
    full_flag = getenv("FAULTIO_FULL");
    fill_at = getenv("FAULTIO_FILL_AT");
    free_file = getenv("FAULTIO_FREE");
    no_flock = getenv("FAULTIO_NO_FLOCK") != NULL;
    no_rename = getenv("FAULTIO_NO_RENAME") != NULL;
    no_fsync = getenv("FAULTIO_NO_FSYNC") != NULL;
}

void faultio_arm(const char *path, long n, int manner, int error, int for_good) {
    strncpy(folder, path, sizeof folder - 1);
    strike_at = n;
    how = manner;
    error_number = error;
    sticky = for_good;
    count = struck = 0;
}

long faultio_count(void) { return count; }
long faultio_struck(void) { return struck; }

static int under(const char *root, const char *path) {
    size_t length = root ? strlen(root) : 0;
    return length && path && strncmp(path, root, length) == 0 && (path[length] == '/' || !path[length]);
}

static int name_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return 1;
}

static int inside(const char *path) { return folder[0] && under(folder, path); }

static int inside_fd(int fd) {
    char path[4096];
    return folder[0] && name_of(fd, path, sizeof path) && under(folder, path);
}

static int is_full(void) { return full_flag && access(full_flag, F_OK) == 0; }

static int outside_full(const char *path) { return is_full() && under(outer, path); }

static int outside_full_fd(int fd) {
    char path[4096];
    return is_full() && name_of(fd, path, sizeof path) && under(outer, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int may_fail(enum kind kind) {
    switch (error_number) {
    case ENOSPC:
    case EDQUOT: return kind != REMOVE && kind != CUT && !(sticky && kind == MOVE);
    case EINTR: return kind == WRITE || kind == SYNC || kind == GROW || kind == CUT || kind == OPEN;
    case EBUSY: return kind == MOVE || kind == REMOVE;
    default: return 1;
    }
}

int faultio_can_strike(long n, int manner, int error) {
    if (n >= (long)(sizeof counted / sizeof *counted)) return 1;
    if (manner == KILL) return 1;
    if (manner != FAIL) return counted[n].kind == WRITE && counted[n].is_long;
    error_number = error;
    sticky = 0;
    return may_fail(counted[n].kind);
}

/* Counts one operation; what is to become of it. A kill that comes before the operation does not return. */
static enum verdict judge(enum kind kind, size_t size) {
    long now = __sync_add_and_fetch(&count, 1);
    if (now < (long)(sizeof counted / sizeof *counted)) {
        counted[now].kind = (char)kind;
        counted[now].is_long = size > 1;
    }
    if (!strike_at || now < strike_at) return PASS;
    if (now == strike_at && kind == WRITE && size > 1 && (how == HALF_KILL || how == HALF_FAIL)) return HALF;
    if (how >= LIE_SHORT) {
        if (kind != WRITE || size < 2 || (now > strike_at && (!sticky && struck))) return PASS;
        __sync_add_and_fetch(&struck, 1);
        return LIE;
    }
    if (how == KILL || how == HALF_KILL) {
        if (now > strike_at) return PASS;
        kill(getpid(), SIGKILL);
        pause();
    }
    if (now > strike_at + (how == HALF_FAIL) && !sticky) return PASS;
    if (!may_fail(kind)) return PASS;
    __sync_add_and_fetch(&struck, 1);
    errno = error_number;
    return REFUSE;
}

static void kill_after_half(void) {
    if (how != HALF_KILL) return;
    kill(getpid(), SIGKILL);
    pause();
}

static int refuse(int number) {
    errno = number;
    return -1;
}

/* How many of `size` bytes a full disk still takes from this process. */
static size_t taken(size_t size) {
    size_t fits = (long)size <= room ? size : (room > 0 ? (size_t)room : 0);
    room -= (long)fits;
    return fits;
}

static ssize_t lie(int fd, const char *bytes, size_t size) {
    char *other = malloc(size);
    if (!other) abort();
    memcpy(other, bytes, size);
    if (how == LIE_ZEROS) memset(other, 0, size);
    if (how == LIE_FLIP) other[size / 2] ^= 4;
    if (NEXT(write)(fd, other, how == LIE_SHORT ? size / 2 : size) < 0) abort();
    free(other);
    return (ssize_t)size;
}

/* A checkpoint may be deleted a step before the disk is full or a step after: it makes no room, or one run would be
 * held and the next one not. */
static void made_free(const char *path, long size) {
    static const char name[] = "/.reserve";
    size_t length = strlen(path), own = sizeof name - 1;
    if (length >= own && strcmp(path + length - own, name) == 0) most_room += size;
    room = room + size < most_room ? room + size : most_room;
}

/* A run takes a step in some milliseconds: nobody else would be in time. Each number counts once, for all attempts. */
static void fill_where_due(int fd) {
    static const char name[] = "/metrics.jsonl";
    char path[4096], once[8192], *rest;
    if (!fill_at || !full_flag || !name_of(fd, path, sizeof path) || !under(outer, path)) return;
    size_t length = strlen(path), own = sizeof name - 1;
    if (length < own || strcmp(path + length - own, name) != 0) return;
    long number = strtol(fill_at, &rest, 10);
    if (++metrics_written < number) return;
    fill_at = *rest == ',' ? rest + 1 : NULL;
    snprintf(once, sizeof once, "%s.%ld", full_flag, number);
    int first = NEXT(open)(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (first < 0) return;
    close(first);
    room = most_room = 0;
    close(NEXT(open)(full_flag, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

ssize_t write(int fd, const void *bytes, size_t size) {
    fill_where_due(fd);
    if (outside_full_fd(fd)) {
        size_t fits = taken(size);
        if (size && !fits) return refuse(ENOSPC);
        return NEXT(write)(fd, bytes, fits);
    }
    enum verdict verdict = inside_fd(fd) ? judge(WRITE, size) : PASS;
    if (verdict == REFUSE) return -1;
    if (verdict == LIE) return lie(fd, bytes, size);
    ssize_t written = NEXT(write)(fd, bytes, verdict == HALF ? size / 2 : size);
    if (verdict == HALF) kill_after_half();
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    if (outside_full_fd(fd)) {
        size_t fits = taken(parts[0].iov_len);
        if (!fits) return refuse(ENOSPC);
        return NEXT(write)(fd, parts[0].iov_base, fits);
    }
    if (inside_fd(fd) && judge(WRITE, 0) == REFUSE) return -1;
    return NEXT(writev)(fd, parts, n);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    if (outside_full_fd(fd) && !(size = taken(size))) return refuse(ENOSPC);
    if (inside_fd(fd) && judge(WRITE, 0) == REFUSE) return -1;
    return NEXT(pwrite64)(fd, bytes, size, offset);
}

int fsync(int fd) {
    struct stat64 at;
    char path[4096];
    if (no_fsync && fstat64(fd, &at) == 0 && S_ISDIR(at.st_mode) && name_of(fd, path, sizeof path) && under(outer, path))
        return refuse(EINVAL);
    if (inside_fd(fd) && judge(SYNC, 0) == REFUSE) return -1;
    return NEXT(fsync)(fd);
}

int ftruncate64(int fd, off64_t size) {
    struct stat64 at;
    char path[4096];
    int grows = fstat64(fd, &at) == 0 && size > at.st_size;
    if (grows && outside_full_fd(fd) && taken((size_t)(size - at.st_size)) < (size_t)(size - at.st_size))
        return refuse(ENOSPC);
    if (!grows && outside_full_fd(fd) && name_of(fd, path, sizeof path)) made_free(path, at.st_size - size);
    if (inside_fd(fd) && judge(grows ? GROW : CUT, 0) == REFUSE) return -1;
    return NEXT(ftruncate64)(fd, size);
}

int flock(int fd, int operation) {
    char path[4096];
    if (no_flock && name_of(fd, path, sizeof path) && under(outer, path)) return refuse(ENOLCK);
    return NEXT(flock)(fd, operation);
}

int rename(const char *from, const char *to) {
    struct stat64 at;
    if (no_rename && under(outer, to) && lstat64(from, &at) == 0 && S_ISDIR(at.st_mode)) return refuse(ENOSYS);
    if (inside(to) && judge(MOVE, 0) == REFUSE) return -1;
    return NEXT(rename)(from, to);
}

/* The name that `path` below the folder open as `fd` has; Python's files of a run are opened and renamed so. */
static const char *full_name(int fd, const char *path, char *full, size_t size) {
    if (path[0] == '/' || fd == AT_FDCWD || !name_of(fd, full, size)) return path;
    size_t length = strlen(full);
    snprintf(full + length, size - length, "/%s", path);
    return full;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    char path[8192];
    if (inside(full_name(to_fd, to, path, sizeof path)) && judge(MOVE, 0) == REFUSE) return -1;
    return NEXT(renameat)(from_fd, from, to_fd, to);
}

int mkdir(const char *path, mode_t mode) {
    if (outside_full(path) && room <= 0) return refuse(ENOSPC);
    if (inside(path) && judge(MAKE, 0) == REFUSE) return -1;
    return NEXT(mkdir)(path, mode);
}

int unlink(const char *path) {
    struct stat64 at;
    if (outside_full(path) && lstat64(path, &at) == 0 && S_ISREG(at.st_mode)) made_free(path, at.st_size);
    if (inside(path) && judge(REMOVE, 0) == REFUSE) return -1;
    return NEXT(unlink)(path);
}

int unlinkat(int fd, const char *path, int flags) {
    struct stat64 at;
    char full[8192];
    if ((outside_full(path) || outside_full_fd(fd)) && !(flags & AT_REMOVEDIR) &&
        fstatat64(fd, path, &at, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(at.st_mode))
        made_free(full_name(fd, path, full, sizeof full), at.st_size);
    if ((inside(path) || inside_fd(fd)) && judge(REMOVE, 0) == REFUSE) return -1;
    return NEXT(unlinkat)(fd, path, flags);
}

int rmdir(const char *path) {
    if (inside(path) && judge(REMOVE, 0) == REFUSE) return -1;
    return NEXT(rmdir)(path);
}

static int changes(int flags) { return (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY; }

static int has_no_room(const char *path, int flags) {
    return (flags & O_CREAT) && outside_full(path) && room <= 0 && access(path, F_OK) != 0;
}

#define OPEN_LIKE(name)                                                         \
    int name(const char *path, int flags, ...) {                               \
        mode_t mode = 0;                                                       \
        if (flags & (O_CREAT | O_TMPFILE)) {                                   \
            va_list rest;                                                      \
            va_start(rest, flags);                                             \
            mode = va_arg(rest, mode_t);                                       \
            va_end(rest);                                                      \
        }                                                                      \
        if (has_no_room(path, flags)) return refuse(ENOSPC);                   \
        if (inside(path) && changes(flags) && judge(OPEN, 0) == REFUSE) return -1; \
        return NEXT(name)(path, flags, mode);                                  \
    }

OPEN_LIKE(open)
OPEN_LIKE(open64)

#define OPENAT_LIKE(name)                                                       \
    int name(int fd, const char *path, int flags, ...) {                       \
        char full[8192];                                                       \
        const char *whole = full_name(fd, path, full, sizeof full);            \
        mode_t mode = 0;                                                       \
        if (flags & (O_CREAT | O_TMPFILE)) {                                   \
            va_list rest;                                                      \
            va_start(rest, flags);                                             \
            mode = va_arg(rest, mode_t);                                       \
            va_end(rest);                                                      \
        }                                                                      \
        if (has_no_room(whole, flags)) return refuse(ENOSPC);                  \
        if (inside(whole) && changes(flags) && judge(OPEN, 0) == REFUSE) return -1; \
        return NEXT(name)(fd, path, flags, mode);                              \
    }

OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)

#define STATVFS_LIKE(name)                                                        \
    int name(const char *path, struct name *found) {                              \
        int result = NEXT(name)(path, found);                                     \
        unsigned long long bytes;                                                 \
        FILE *file = result == 0 && free_file && under(outer, path) ? fopen(free_file, "r") : NULL; \
        if (!file) return result;                                                 \
        if (fscanf(file, "%llu", &bytes) == 1)                                    \
            found->f_bfree = found->f_bavail = bytes / found->f_frsize;           \
        fclose(file);                                                             \
        return 0;                                                                 \
    }

STATVFS_LIKE(statvfs)
STATVFS_LIKE(statvfs64)
