/* A no-op FUSE file system: one thread, one read and one write per request, no backing file system.
 *
 * It is the upper bound of any FUSE server on a machine that sees each open: names and sizes are kept in memory, written
 * data is dropped, reads give zeros. It has no extended attributes, so that the kernel asks for none. With TREE, the files of
 * a folder are there from the start, with their contents, in memory; the kernel may keep everything that it can cache, and
 * opens folders without a request. `scripts/bench.sh` and `scripts/bench-walks.py` measure it as the target `limit`.
 *
 * usage: null_fuse [--poll] MOUNTPOINT [TREE]    (root; ends when it is unmounted)
 *
 * --poll: for 20 us after a request it looks for the next one instead of sleeping.
 * Protocol: linux/fuse.h, version 7.31 as far as it is used here.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 1 << 18, SLOTS = 1 << 19, BUFFER = (1 << 20) + 65536, POLL_NS = 20000 };

struct node {
    char *name, *data; /* data: NULL for zeros */
    uint64_t parent, size, mtime, generation;
    uint64_t first, last; /* the lowest and the highest id of a child, ever */
    uint32_t mode;
};

static struct node nodes[NODES];
static uint32_t slots[SLOTS]; /* 0: free, 1: removed, else a node id */
static uint64_t used = FUSE_ROOT_ID;
static uint64_t holes[NODES], hole_count;
static int device, has_tree;
static uint64_t valid_s = 1, generations;
static char request[BUFFER];
static char answer[BUFFER];
static const char zeros[BUFFER];

static uint64_t hash(uint64_t parent, const char *name) {
    uint64_t value = 1469598103934665603u ^ parent;
    while (*name)
        value = (value ^ (unsigned char)*name++) * 1099511628211u;
    return value ^ value >> 29;
}

static uint32_t *slot_of(uint64_t parent, const char *name, int for_new) {
    for (uint64_t at = hash(parent, name);; at++) {
        uint32_t *slot = &slots[at % SLOTS];
        if (*slot == 0 || (for_new && *slot == 1))
            return slot;
        if (*slot > 1 && nodes[*slot].parent == parent && strcmp(nodes[*slot].name, name) == 0)
            return slot;
    }
}

static uint64_t find(uint64_t parent, const char *name) { return *slot_of(parent, name, 0); }

static uint64_t make(uint64_t parent, const char *name, uint32_t mode) {
    uint64_t id = hole_count ? holes[--hole_count] : ++used;
    if (id >= NODES)
        return 0;
    nodes[id] = (struct node){.name = strdup(name), .parent = parent, .mode = mode, .generation = generations++};
    *slot_of(parent, name, 1) = (uint32_t)id;
    if (!nodes[parent].first || id < nodes[parent].first)
        nodes[parent].first = id;
    if (id > nodes[parent].last)
        nodes[parent].last = id;
    return id;
}

static void reply(const struct fuse_in_header *in, int error, const void *data, size_t length) {
    struct fuse_out_header out = {(uint32_t)(sizeof out + length), -error, in->unique};
    struct iovec parts[] = {{&out, sizeof out}, {(void *)data, length}};
    /* ENOENT: the request was interrupted; it has no waiter. */
    if (writev(device, parts, length ? 2 : 1) < 0 && errno != ENOENT)
        perror("null_fuse: reply");
}

static struct fuse_attr attributes(uint64_t id) {
    struct fuse_attr attr = {.ino = id, .size = nodes[id].size, .mode = nodes[id].mode, .nlink = 1, .blksize = 4096,
                             .blocks = (nodes[id].size + 511) / 512, .mtime = nodes[id].mtime, .ctime = nodes[id].mtime};
    return attr;
}

static struct fuse_entry_out entry(uint64_t id) {
    struct fuse_entry_out out = {.nodeid = id, .generation = nodes[id].generation, .entry_valid = valid_s,
                                 .attr_valid = valid_s, .attr = attributes(id)};
    return out;
}

static void list(const struct fuse_in_header *in, const struct fuse_read_in *read_in, int plus) {
    const struct node *folder = &nodes[in->nodeid];
    size_t length = 0;
    uint64_t id = read_in->offset < folder->first ? folder->first : read_in->offset + 1;
    for (; id <= folder->last; id++) {
        if (!nodes[id].name || nodes[id].parent != in->nodeid)
            continue;
        size_t name = strlen(nodes[id].name);
        size_t head = plus ? sizeof(struct fuse_entry_out) : 0;
        size_t record = head + FUSE_DIRENT_ALIGN(sizeof(struct fuse_dirent) + name);
        if (length + record > read_in->size)
            break;
        memset(answer + length, 0, record);
        if (plus) {
            struct fuse_entry_out found = entry(id);
            memcpy(answer + length, &found, sizeof found);
        }
        struct fuse_dirent *dirent = (struct fuse_dirent *)(answer + length + head);
        dirent->ino = id;
        dirent->off = id;
        dirent->namelen = (uint32_t)name;
        dirent->type = nodes[id].mode >> 12;
        memcpy(dirent->name, nodes[id].name, name);
        length += record;
    }
    reply(in, 0, answer, length);
}

static void create(const struct fuse_in_header *in, const char *name, uint32_t mode, int with_open) {
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out = {0};
    uint64_t id = make(in->nodeid, name, mode);
    if (!id) {
        reply(in, ENOSPC, NULL, 0);
        return;
    }
    out.entry = entry(id);
    reply(in, 0, &out, with_open ? sizeof out : sizeof out.entry);
}

static void remove_name(const struct fuse_in_header *in, const char *name) {
    uint32_t *slot = slot_of(in->nodeid, name, 0);
    if (*slot > 1) {
        uint64_t id = *slot;
        free(nodes[id].name);
        free(nodes[id].data);
        nodes[id].name = nodes[id].data = NULL;
        holes[hole_count++] = id;
        *slot = 1;
        reply(in, 0, NULL, 0);
    } else {
        reply(in, ENOENT, NULL, 0);
    }
}

static void set_size(const struct fuse_in_header *in, const struct fuse_setattr_in *set) {
    if (set->valid & FATTR_SIZE) {
        free(nodes[in->nodeid].data);
        nodes[in->nodeid].data = NULL;
        nodes[in->nodeid].size = set->size;
    }
    if (set->valid & FATTR_MODE)
        nodes[in->nodeid].mode = (nodes[in->nodeid].mode & S_IFMT) | (set->mode & ~S_IFMT);
}

static void serve(const struct fuse_in_header *in, const void *body) {
    struct fuse_attr_out attr = {.attr_valid = valid_s};
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *init = body;
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = init->max_readahead, .max_write = 1 << 20,
                                    .max_background = 16, .congestion_threshold = 12, .time_gran = 1, .max_pages = 256};
        out.flags = init->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
                                   FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_HANDLE_KILLPRIV | FUSE_NO_OPENDIR_SUPPORT);
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        break;
    case FUSE_LOOKUP: {
        uint64_t id = find(in->nodeid, body);
        struct fuse_entry_out out = id > 1 ? entry(id) : (struct fuse_entry_out){.entry_valid = valid_s};
        int is_told = id > 1 || has_tree; /* an entry without an id: the kernel keeps that the name is absent */
        reply(in, is_told ? 0 : ENOENT, &out, is_told ? sizeof out : 0);
        break;
    }
    case FUSE_SETATTR:
        set_size(in, body);
        /* fallthrough */
    case FUSE_GETATTR:
        attr.attr = attributes(in->nodeid);
        reply(in, 0, &attr, sizeof attr);
        break;
    case FUSE_CREATE: {
        const struct fuse_create_in *wanted = body;
        create(in, (const char *)(wanted + 1), (wanted->mode & 07777) | S_IFREG, 1);
        break;
    }
    case FUSE_MKDIR: {
        const struct fuse_mkdir_in *wanted = body;
        create(in, (const char *)(wanted + 1), (wanted->mode & 07777) | S_IFDIR, 0);
        break;
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR:
        remove_name(in, body);
        break;
    case FUSE_OPENDIR:
        if (has_tree) { /* the kernel then opens each folder by itself, and keeps listings */
            reply(in, ENOSYS, NULL, 0);
            break;
        }
        /* fallthrough */
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *wanted = body;
        uint64_t size = nodes[in->nodeid].size;
        uint64_t rest = wanted->offset < size ? size - wanted->offset : 0;
        const char *data = nodes[in->nodeid].data ? nodes[in->nodeid].data + wanted->offset : zeros;
        reply(in, 0, data, rest < wanted->size ? rest : wanted->size);
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *wanted = body;
        struct fuse_write_out out = {.size = wanted->size};
        free(nodes[in->nodeid].data);
        nodes[in->nodeid].data = NULL;
        if (wanted->offset + wanted->size > nodes[in->nodeid].size)
            nodes[in->nodeid].size = wanted->offset + wanted->size;
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
        list(in, body, in->opcode == FUSE_READDIRPLUS);
        break;
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.blocks = 1 << 28, .bfree = 1 << 28, .bavail = 1 << 28, .files = NODES,
                                             .ffree = NODES, .bsize = 4096, .frsize = 4096, .namelen = 255}};
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_DESTROY:
        reply(in, 0, NULL, 0);
        break;
    default:
        reply(in, ENOSYS, NULL, 0);
    }
}

/* Copies the files and folders of a folder into memory: the children of each folder have ids in a row. */
static int load(const char *path, uint64_t folder) {
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort), status = count < 0 ? -1 : 0;
    uint64_t first = used + 1;
    for (int at = 0; at < count && status == 0; at++) {
        char place[4096];
        struct stat found;
        const char *name = names[at]->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        snprintf(place, sizeof place, "%s/%s", path, name);
        uint64_t id = lstat(place, &found) == 0 ? make(folder, name, found.st_mode) : 0;
        if (id == 0) {
            status = -1;
            break;
        }
        nodes[id].mtime = (uint64_t)found.st_mtime;
        nodes[id].size = (uint64_t)found.st_size;
        if (S_ISREG(found.st_mode)) {
            int file = open(place, O_RDONLY | O_CLOEXEC);
            nodes[id].data = malloc(nodes[id].size + 1);
            if (file < 0 || !nodes[id].data || read(file, nodes[id].data, nodes[id].size) != found.st_size)
                status = -1;
            if (file >= 0)
                close(file);
        }
    }
    for (int at = 0; at < count; at++)
        free(names[at]);
    if (count >= 0)
        free(names);
    for (uint64_t id = first, end = used; id <= end && status == 0; id++) {
        char place[4096];
        snprintf(place, sizeof place, "%s/%s", path, nodes[id].name);
        if (S_ISDIR(nodes[id].mode))
            status = load(place, id);
    }
    return status;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int count, char **words) {
    int polls = count > 1 && strcmp(words[1], "--poll") == 0;
    words += polls;
    count -= polls;
    if (count != 2 && count != 3) {
        fprintf(stderr, "usage: null_fuse [--poll] MOUNTPOINT [TREE]\n");
        return 2;
    }
    nodes[FUSE_ROOT_ID].mode = S_IFDIR | 0777;
    has_tree = count == 3;
    if (has_tree) {
        valid_s = 3600;
        if (load(words[2], FUSE_ROOT_ID) < 0) {
            fprintf(stderr, "null_fuse: %s: not all of it was read (%s; at most %d files)\n", words[2], strerror(errno), NODES);
            return 2;
        }
    }
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC | (polls ? O_NONBLOCK : 0));
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
             device);
    if (device < 0 || mount("null", words[1], "fuse.null", MS_NOSUID | MS_NODEV, options) < 0) {
        perror("null_fuse: mount");
        return 2;
    }
    if (daemon(1, 1) < 0)
        perror("null_fuse: daemon");
    for (uint64_t last = 0;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && errno == ENODEV)
            return 0;
        if (length < 0 && errno == EAGAIN && polls && now_ns() - last > POLL_NS) {
            struct pollfd waiting = {.fd = device, .events = POLLIN};
            poll(&waiting, 1, -1);
        }
        if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (length < (ssize_t)sizeof(struct fuse_in_header)) {
            perror("null_fuse: read");
            return 1;
        }
        serve((const struct fuse_in_header *)request, request + sizeof(struct fuse_in_header));
        if (polls)
            last = now_ns();
    }
}
