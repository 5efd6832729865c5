/* A no-op FUSE file system: one thread, one read and one write per request, no backing file system.
 *
 * It is the upper bound of any FUSE server on a machine: names and sizes are kept in memory, written data is
 * dropped, reads give zeros. `scripts/bench.sh` measures it as the target `limit` beside the others.
 *
 * usage: null_fuse MOUNTPOINT    (root; ends when it is unmounted)
 * Protocol: linux/fuse.h, version 7.31 as far as it is used here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NODES = 1 << 18, SLOTS = 1 << 19, BUFFER = (1 << 20) + 65536, VALID_S = 1 };

struct node {
    char *name;
    uint64_t parent, size;
    uint32_t mode;
};

static struct node nodes[NODES];
static uint32_t slots[SLOTS]; /* 0: free, 1: removed, else a node id */
static uint64_t used = FUSE_ROOT_ID;
static uint64_t holes[NODES], hole_count;
static int device;
static char request[BUFFER];
static char answer[BUFFER];

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
    nodes[id] = (struct node){strdup(name), parent, 0, mode};
    *slot_of(parent, name, 1) = (uint32_t)id;
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
    struct fuse_attr attr = {.ino = id, .size = nodes[id].size, .mode = nodes[id].mode, .nlink = 1, .blksize = 4096};
    return attr;
}

static struct fuse_entry_out entry(uint64_t id) {
    struct fuse_entry_out out = {.nodeid = id, .entry_valid = VALID_S, .attr_valid = VALID_S, .attr = attributes(id)};
    return out;
}

static void list(const struct fuse_in_header *in, const struct fuse_read_in *read_in, int plus) {
    size_t length = 0;
    for (uint64_t id = read_in->offset + 1; id <= used; id++) {
        if (id == FUSE_ROOT_ID || !nodes[id].name || nodes[id].parent != in->nodeid)
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
        nodes[id].name = NULL;
        holes[hole_count++] = id;
        *slot = 1;
        reply(in, 0, NULL, 0);
    } else {
        reply(in, ENOENT, NULL, 0);
    }
}

static void set_size(const struct fuse_in_header *in, const struct fuse_setattr_in *set) {
    if (set->valid & FATTR_SIZE)
        nodes[in->nodeid].size = set->size;
    if (set->valid & FATTR_MODE)
        nodes[in->nodeid].mode = (nodes[in->nodeid].mode & S_IFMT) | (set->mode & ~S_IFMT);
}

static void serve(const struct fuse_in_header *in, const void *body) {
    struct fuse_attr_out attr = {.attr_valid = VALID_S};
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *init = body;
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = init->max_readahead, .max_write = 1 << 20,
                                    .max_background = 16, .congestion_threshold = 12, .time_gran = 1, .max_pages = 256};
        out.flags = init->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
                                   FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_ATOMIC_O_TRUNC |
                                   FUSE_HANDLE_KILLPRIV);
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        break;
    case FUSE_LOOKUP: {
        uint64_t id = find(in->nodeid, body);
        struct fuse_entry_out out = id > 1 ? entry(id) : (struct fuse_entry_out){0};
        reply(in, id > 1 ? 0 : ENOENT, &out, id > 1 ? sizeof out : 0);
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
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
        reply(in, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *wanted = body;
        uint64_t size = nodes[in->nodeid].size;
        uint64_t rest = wanted->offset < size ? size - wanted->offset : 0;
        memset(answer, 0, sizeof answer < 64 ? sizeof answer : 64);
        reply(in, 0, answer, rest < wanted->size ? rest : wanted->size);
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *wanted = body;
        struct fuse_write_out out = {.size = wanted->size};
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

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "usage: null_fuse MOUNTPOINT\n");
        return 2;
    }
    nodes[FUSE_ROOT_ID].mode = S_IFDIR | 0777;
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
             device);
    if (device < 0 || mount("null", words[1], "fuse.null", MS_NOSUID | MS_NODEV, options) < 0) {
        perror("null_fuse: mount");
        return 2;
    }
    if (daemon(1, 1) < 0)
        perror("null_fuse: daemon");
    for (;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && errno == ENODEV)
            return 0;
        if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (length < (ssize_t)sizeof(struct fuse_in_header)) {
            perror("null_fuse: read");
            return 1;
        }
        serve((const struct fuse_in_header *)request, request + sizeof(struct fuse_in_header));
    }
}
