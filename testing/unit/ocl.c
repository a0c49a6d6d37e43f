/* SPDX-License-Identifier: BSD-3-Clause
 * The ocl layer: files of compiled programs, the pool's allowance, device selection. */
#include "fakecl.h"
#include "engine/ocl/helper.h"
#include "engine/ocl/start.h"
#include "engine/ocl/store.h"
#include "tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;
static char directory[64];

/* ---- files of compiled programs ---- */

/* The only file of the directory. */
static bool entry_file(char *path, size_t size)
{
    int count = 0;
    DIR *dir = opendir(directory);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, size, "%.60s/%.200s", directory, entry->d_name);
        count++;
    }
    if (dir != NULL)
        closedir(dir);
    return count == 1;
}

static void write_file(const char *path, const unsigned char *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    expect(file != NULL && fwrite(data, 1, size, file) == size, "%s", path);
    if (file != NULL)
        fclose(file);
}

static struct clb_key key_of(const char *detail)
{
    return (struct clb_key){CLB_RECORD_PROGRAM, "the device", detail};
}

static void store(const char *key, const unsigned char *data, size_t size)
{
    clb_record_store(
        key_of(key),
        (struct clb_record){.text = (char *)(uintptr_t)data, .size = size, .verdict = CLB_PASSED});
}

static bool loads(const char *key, const unsigned char *want, size_t want_size)
{
    struct clb_record record;
    if (!clb_record_load(key_of(key), &record))
        return false;
    expect(record.size == want_size && memcmp(record.text, want, want_size) == 0, "other content");
    expect(record.verdict == CLB_PASSED, "another verdict");
    clb_record_free(&record);
    return true;
}

static void fill(unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)random_bits(&seed);
}

static void store_and_load(void *unused)
{
    unsigned char data[3000], again[100];
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    fill(data, sizeof data);
    fill(again, sizeof again);
    expect(!loads("key one", data, sizeof data), "an entry before it was stored");
    store("key one", data, sizeof data);
    expect(loads("key one", data, sizeof data), "not stored");
    expect(!loads("key two", data, sizeof data), "another key");
    store("key one", again, sizeof again);
    expect(loads("key one", again, sizeof again), "not replaced");
    struct stat info;
    char path[300];
    expect(entry_file(path, sizeof path) && stat(path, &info) == 0 && (info.st_mode & 022) == 0,
           "one file that only we may write");
    expect(unlink(path) == 0, "unlink");
}

/* Every single byte, every length, and content of another key under this one's name. */
static void damaged(void *unused)
{
    unsigned char data[200], *whole, *spoiled;
    char path[300];
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    fill(data, sizeof data);
    store("the key", data, sizeof data);
    if (!expect(entry_file(path, sizeof path), "no file"))
        return;
    size_t size = 0;
    FILE *file = fopen(path, "rb");
    whole = malloc(4096);
    spoiled = malloc(4096);
    if (file != NULL && whole != NULL)
        size = fread(whole, 1, 4096, file);
    expect(size > sizeof data && size < 4096, "%zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        memcpy(spoiled, whole, size);
        spoiled[i] ^= (unsigned char)(1 + random_below(&seed, 255));
        write_file(path, spoiled, size);
        expect(!loads("the key", data, sizeof data), "byte %zu damaged and accepted", i);
    }
    for (size_t length = 0; length < size; length++) {
        write_file(path, whole, length);
        expect(!loads("the key", data, sizeof data), "%zu of %zu bytes accepted", length, size);
    }
    memcpy(spoiled, whole, size);
    spoiled[size] = 0;
    write_file(path, spoiled, size + 1);
    expect(!loads("the key", data, sizeof data), "a longer file accepted");
    write_file(path, whole, size);
    expect(loads("the key", data, sizeof data), "the whole file is refused");
    store("the key", data, sizeof data);
    expect(loads("the key", data, sizeof data), "a damaged entry is not made again");
    expect(unlink(path) == 0, "unlink");
    if (file != NULL)
        fclose(file);
    free(whole);
    free(spoiled);
}

static void not_writable(void *unused)
{
    unsigned char data[10] = {1};
    char path[100];
    (void)unused;
    /* A file is no directory, for root neither. */
    snprintf(path, sizeof path, "%s/file", directory);
    write_file(path, data, sizeof data);
    setenv("CLBLAS_SHIM_CACHE_DIR", path, 1);
    expect(clb_cache_directory() == NULL, "a file as a directory");
    store("key", data, sizeof data);
    expect(!loads("key", data, sizeof data), "stored nowhere");
    unlink(path);
}

static void no_cache(void *unused)
{
    unsigned char data[10] = {1};
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    expect(clb_cache_directory() == NULL, "none");
    store("key", data, sizeof data);
    expect(!loads("key", data, sizeof data), "stored nowhere");
}

/* Somebody else's directory is not trusted unless it was named. */
static void writable_by_others(void *unused)
{
    char path[100];
    (void)unused;
    snprintf(path, sizeof path, "%s/clblas-shim", directory);
    expect(mkdir(path, 0777) == 0 && chmod(path, 0777) == 0, "mkdir");
    setenv("XDG_CACHE_HOME", directory, 1);
    expect(clb_cache_directory() == NULL, "a directory that everybody may write");
    rmdir(path);
}

static void write_often(uint64_t *state)
{
    unsigned char data[40000];
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    for (int i = 0; i < 200; i++) {
        struct clb_record got;
        memset(data, (int)random_below(state, 256), sizeof data);
        store("shared", data, 1 + random_below(state, sizeof data));
        bool found = clb_record_load(key_of("shared"), &got);
        expect(found, "no entry while others write");
        for (size_t b = 1; found && b < got.size; b++)
            expect(got.text[b] == got.text[0], "a mixture of two writers");
        clb_record_free(&got);
    }
}

static void *write_in_thread(void *state)
{
    write_often(state);
    return NULL;
}

static void concurrent_writers(void *unused)
{
    pid_t child[3];
    pthread_t thread[2];
    uint64_t state[2] = {random_bits(&seed), random_bits(&seed)};
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(child); i++) {
        seed += i;
        child[i] = fork();
        if (child[i] == 0) {
            write_often(&seed);
            _exit(expect_failures() != 0);
        }
    }
    for (size_t i = 0; i < CLB_COUNT_OF(thread); i++)
        pthread_create(&thread[i], NULL, write_in_thread, &state[i]);
    for (size_t i = 0; i < CLB_COUNT_OF(thread); i++)
        pthread_join(thread[i], NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(child); i++) {
        int status = -1;
        waitpid(child[i], &status, 0);
        expect(status == 0, "a writer failed");
    }
    char path[300];
    expect(entry_file(path, sizeof path), "temporary files are left behind");
    unlink(path);
}

/* ---- the pool ---- */

static struct clb_runtime *start_runtime(const char *limit, bool discrete)
{
    setenv("CLBLAS_SHIM_MEMORY", limit, 1);
    return fake_cl_start_device(discrete);
}

static void allowance(void *discrete)
{
    struct clb_runtime *runtime = start_runtime("8M", discrete != NULL);
    struct clb_buffer *buffers[64] = {NULL};
    const uint64_t limit = (uint64_t)8 << 20;
    expect(runtime->memory_limit == limit, "the limit");
    expect(clb_memory_available(runtime) == limit, "all of it is free");
    int refused = 0;
    for (int i = 0; i < 4000; i++) {
        size_t which = random_below(&seed, CLB_COUNT_OF(buffers));
        if (buffers[which] != NULL) {
            clb_buffer_end(runtime, buffers[which], true);
            buffers[which] = NULL;
            continue;
        }
        size_t size = 1 + random_below(&seed, (size_t)1 << (10 + random_below(&seed, 12)));
        clb_memory_kind kind = random_below(&seed, 2) ? CLB_MEMORY_DEVICE : CLB_MEMORY_HOST;
        uint64_t free_bytes = clb_memory_available(runtime);
        clb_status status = clb_buffer_get(runtime, kind, size, &buffers[which]);
        if (status == CLB_OK) {
            expect(buffers[which]->size >= size && buffers[which]->kind == kind,
                   "a smaller buffer");
            bool host = kind == CLB_MEMORY_HOST;
            expect(!host || buffers[which]->host != NULL, "nothing for the CPU to read");
            if (buffers[which]->host != NULL)
                memset(buffers[which]->host, 0x5a, size);
        } else {
            expect(status == CLB_ERR_NOMEM, "%s", clb_status_name(status));
            expect(size + size / 4 + 8192 > free_bytes, "%zu bytes refused with %llu free", size,
                   (unsigned long long)free_bytes);
            buffers[which] = NULL;
            refused++;
        }
        expect(fake_cl.live_bytes <= (long long)limit, "%lld bytes", (long long)fake_cl.live_bytes);
    }
    expect(refused > 10, "never refused");
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_end(runtime, buffers[i], true);
    expect(clb_memory_available(runtime) == limit, "%llu bytes are lost",
           (unsigned long long)(limit - clb_memory_available(runtime)));
    expect(fake_cl.peak_bytes <= (long long)limit, "the limit was passed: %lld",
           (long long)fake_cl.peak_bytes);
}

static void reuse(void *unused)
{
    struct clb_runtime *runtime = start_runtime("64M", false);
    struct clb_buffer *first, *second;
    (void)unused;
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, 100000, &first) == CLB_OK, "first");
    clb_buffer_end(runtime, first, true);
    long created = fake_cl.of[FAKE_CreateBuffer];
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, 99000, &second) == CLB_OK && second == first,
           "not used again");
    expect(fake_cl.of[FAKE_CreateBuffer] == created, "created again");
    clb_buffer_end(runtime, second, true);
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, 1000, &second) == CLB_OK && second != first,
           "a large buffer for a small size");
    clb_buffer_end(runtime, second, true);
    /* A buffer that may still be in use stays out of the pool and in the allowance. */
    uint64_t before = clb_memory_available(runtime);
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, 100000, &first) == CLB_OK, "third");
    clb_buffer_end(runtime, first, false);
    expect(clb_memory_available(runtime) < before, "a leaked buffer's memory is counted as free");
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, 100000, &second) == CLB_OK && second != first,
           "a leaked buffer was given out");
    clb_buffer_end(runtime, second, true);
    clb_buffer_end(runtime, NULL, true);
    expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, SIZE_MAX / 2, &second) == CLB_ERR_NOMEM,
           "a size that no device has");
}

/* Plans that nearly fill the allowance count on it: 260 MiB once took 320. */
static void rounding(void *unused)
{
    struct clb_runtime *runtime = start_runtime("64M", false);
    struct clb_buffer *buffer;
    (void)unused;
    for (size_t size = 64 << 10; size < (size_t)30 << 20; size += size / 31) {
        expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, size, &buffer) == CLB_OK, "memory");
        uint64_t taken = runtime->memory_limit - clb_memory_available(runtime);
        expect(taken <= size + size / 8, "%zu bytes took %llu", size, (unsigned long long)taken);
        clb_buffer_end(runtime, buffer, true);
        /* Leave nothing that the next size could use again. */
        expect(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, runtime->memory_limit, &buffer) == CLB_OK,
               "all of it");
        clb_buffer_end(runtime, buffer, true);
    }
}

/* After a failure to create, the allowance is whole again. */
/* Stale pinned memory goes first, not what the last call used. */
static void oldest_first(void *unused)
{
    enum { MIB = 1 << 20, STALE = 60 * MIB, RECENT = 70 * MIB };
    struct clb_runtime *runtime = start_runtime("2G", true);
    struct clb_buffer *stale[4], *recent[3];
    (void)unused;
    if (!expect(runtime != NULL, "no device"))
        return;
    for (int i = 0; i < 4; i++)
        expect(clb_buffer_get(runtime, CLB_MEMORY_HOST, STALE, &stale[i]) == CLB_OK, "stale");
    for (int i = 0; i < 4; i++)
        clb_buffer_end(runtime, stale[i], true);
    for (int i = 0; i < 3; i++)
        expect(clb_buffer_get(runtime, CLB_MEMORY_HOST, RECENT, &recent[i]) == CLB_OK, "recent");
    for (int i = 0; i < 3; i++)
        clb_buffer_end(runtime, recent[i], true);
    for (int i = 0; i < 3; i++) {
        recent[i] = clb_buffer_find(runtime, CLB_MEMORY_HOST, RECENT);
        if (expect(recent[i] != NULL, "buffer %d of the last call is gone", i))
            expect(recent[i]->size >= RECENT, "too small");
    }
}

static void failing_creation(void *discrete)
{
    struct clb_runtime *runtime = start_runtime("8M", discrete != NULL);
    struct clb_buffer *buffer;
    uint64_t before = clb_memory_available(runtime);
    for (int i = 0; i < 50; i++) {
        fake_cl_arm(1, i % 2 ? CL_OUT_OF_RESOURCES : CL_MEM_OBJECT_ALLOCATION_FAILURE, true);
        clb_status status = clb_buffer_get(runtime, CLB_MEMORY_HOST, 1 << 20, &buffer);
        fake_cl_arm(0, 0, false);
        expect(status == (i % 2 ? CLB_ERR_OPENCL : CLB_ERR_NOMEM) && buffer == NULL, "%s",
               clb_status_name(status));
    }
    expect(clb_memory_available(runtime) == before, "the allowance is spent on failures");
    expect(clb_buffer_get(runtime, CLB_MEMORY_HOST, 1 << 20, &buffer) == CLB_OK, "afterwards");
    clb_buffer_end(runtime, buffer, true);
}

/* ---- devices ---- */

struct choice {
    const char *wanted;
    bool found;
};

static void choose(void *argument)
{
    const struct choice *choice = argument;
    struct clb_device device;
    expect(clb_cl_load(NULL) == CLB_OK, "no loader");
    clb_status status = clb_device_select(choice->wanted, &device);
    expect((status == CLB_OK) == choice->found, "\"%s\": %s",
           choice->wanted != NULL ? choice->wanted : "", clb_status_name(status));
    if (status == CLB_OK) {
        expect(device.name[0] != '\0' && device.units > 0 && device.max_alloc > 0 &&
                   device.max_group > 0 && device.memory > 0,
               "an empty description");
        expect(device.unified || (device.type & CL_DEVICE_TYPE_CPU) == 0, "a CPU with own memory");
    }
}

static void test_choices(void)
{
    static const struct choice choices[] = {
        {NULL, true},
        {"0:0", true},
        {"cpu", true},
        {"CPU", true},
        {"p", true},
        {"gpu,cpu", true},
        {"nothing,0:0", true},
        {"pthread", true},
        {"portable computing", true}, /* the platform's name */
        {"the pocl", true},           /* and its vendor */
        {"7:0", false},
        {"0:7", false},
        {"no such device", false},
        {",", false},
        {"0:0x", false},
        {"0:", false},
    };
    for (size_t i = 0; i < CLB_COUNT_OF(choices); i++) {
        char text[1000];
        const char *wanted = choices[i].wanted != NULL ? choices[i].wanted : "unset";
        int status = run_child(30, choose, (void *)(uintptr_t)&choices[i], text, sizeof text);
        tap_ok(status == 0 && (text[0] == '\0') == choices[i].found, "device \"%s\" is %s", wanted,
               choices[i].found ? "found" : "refused with a line");
    }
}

/* ---- the tests' own OpenCL ---- */

static void refuse(cl_int status, cl_int wanted, const char *what)
{
    expect(status == wanted, "%s: %d, not %d", what, (int)status, (int)wanted);
}

/* What strict drivers refuse and PoCL may not. */
static void rules(void *unused)
{
    (void)unused;
    struct clb_runtime *runtime = start_runtime("8M", false);
    if (runtime == NULL)
        return;
    cl_int status;
    char host[64] = "";
    cl_event event = NULL;
    const size_t zero[3] = {0}, box[3] = {8, 8, 1};
    cl_command_queue queue =
        clb_cl.CreateCommandQueue(runtime->context, runtime->device.id, 0, &status);
    cl_mem mem = clb_cl.CreateBuffer(runtime->context, CL_MEM_READ_WRITE, 64, NULL, &status);
    refuse(status, CL_SUCCESS, "a buffer");
    refuse(clb_cl.EnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, host, 0, NULL, &event), CL_SUCCESS,
           "a transfer");
    expect(fake_cl.breaches == 0, "%ld breaches of no rule", fake_cl.breaches);
    fake_cl.breaches_wanted = true;
    refuse(clb_cl.EnqueueBarrierWithWaitList(queue, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST,
           "a list of no events");
    refuse(clb_cl.EnqueueBarrierWithWaitList(queue, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST,
           "an event without a list");
    refuse(clb_cl.EnqueueReadBuffer(queue, mem, CL_TRUE, 8, 64, host, 0, NULL, NULL),
           CL_INVALID_VALUE, "behind the end");
    refuse(clb_cl.EnqueueReadBuffer(queue, mem, CL_TRUE, 0, 0, host, 0, NULL, NULL),
           CL_INVALID_VALUE, "nothing");
    refuse(clb_cl.EnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, box, 4, 0, 8, 0, host, 0,
                                        NULL, NULL),
           CL_INVALID_VALUE, "rows that overlap");
    refuse(clb_cl.EnqueueUnmapMemObject(queue, mem, host, 0, NULL, NULL), CL_INVALID_VALUE,
           "what is not mapped");
    (void)clb_cl.CreateBuffer(runtime->context, CL_MEM_READ_WRITE, 0, NULL, &status);
    refuse(status, CL_INVALID_BUFFER_SIZE, "an empty buffer");
    (void)clb_cl.CreateBuffer(runtime->context, CL_MEM_USE_HOST_PTR, 64, NULL, &status);
    refuse(status, CL_INVALID_HOST_PTR, "no memory of the host");
    refuse(clb_cl.WaitForEvents(0, NULL), CL_INVALID_VALUE, "no events");
    refuse(clb_cl.ReleaseEvent(event), CL_SUCCESS, "an event");
    refuse(clb_cl.WaitForEvents(1, &event), CL_INVALID_EVENT, "a released event");
    refuse(clb_cl.ReleaseMemObject(mem), CL_SUCCESS, "a buffer");
    refuse(clb_cl.EnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, host, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT, "a released buffer");
    expect(fake_cl.breaches == 11, "%ld breaches", fake_cl.breaches);
    refuse(clb_cl.ReleaseCommandQueue(queue), CL_SUCCESS, "a queue");
}

/* ---- driver tasks ---- */

struct errand {
    double seconds;
    atomic_int *count;
};

static clb_status take_a_while(void *argument)
{
    const struct errand *errand = argument;
    usleep((useconds_t)(1e6 * errand->seconds));
    atomic_fetch_add(errand->count, 1);
    return CLB_ERR_RANGE;
}

/* A thread with little patience leaves; the task is run to its end all the same, with its own copy
 * of the argument, and meanwhile others are told so at once. */
static void impatient(void *unused)
{
    static atomic_int count;
    struct errand errand = {0.3, &count};
    double begin = clb_now();
    (void)unused;
    expect(clb_driver_set_time_limit(clb_now() + 0.05) == INFINITY, "threads wait for ever");
    expect(clb_driver_request(take_a_while, &errand, sizeof errand) == CLB_ERR_STARTING, "a wait");
    double left = clb_now() - begin;
    errand = (struct errand){0, NULL};
    expect(left >= 0.05 && left < 0.3, "left after %g s", left);
    clb_driver_set_time_limit(clb_now() + 30);
    expect(clb_driver_request(take_a_while, &errand, sizeof errand) == CLB_ERR_STARTING, "busy");
    expect(clb_now() - begin < 0.3 && atomic_load(&count) == 0, "it was not at once");
    errand = (struct errand){0, &count};
    expect(clb_driver_call(take_a_while, &errand) == CLB_ERR_RANGE, "a call always waits");
    expect(atomic_load(&count) == 2, "%d of 2 tasks", atomic_load(&count));
    expect(clb_driver_request(take_a_while, &errand, sizeof errand) == CLB_ERR_RANGE, "the status");
    expect(atomic_load(&count) == 3, "%d of 3 tasks", atomic_load(&count));
}

/* Sixteen threads that wait for ever: each task runs, one at a time. */
static atomic_int at_once, most_at_once;

static clb_status be_alone(void *unused)
{
    (void)unused;
    const int now = atomic_fetch_add(&at_once, 1) + 1;
    if (now > atomic_load(&most_at_once))
        atomic_store(&most_at_once, now);
    usleep(1000);
    atomic_fetch_sub(&at_once, 1);
    return CLB_ERR_RANGE;
}

static void *request_it(void *unused)
{
    const clb_status status = clb_driver_request(be_alone, unused, 0);
    return status == CLB_ERR_RANGE ? NULL : (void *)&at_once;
}

static void one_at_a_time(void *unused)
{
    pthread_t threads[16];
    void *bad;
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(threads); i++)
        expect(pthread_create(&threads[i], NULL, request_it, NULL) == 0, "no thread");
    for (size_t i = 0; i < CLB_COUNT_OF(threads); i++) {
        pthread_join(threads[i], &bad);
        expect(bad == NULL, "a task has not run");
    }
    expect(atomic_load(&most_at_once) == 1, "%d at once", atomic_load(&most_at_once));
}

enum { AT_ONCE = 4 };
static struct clb_runtime discrete_device = {.turns = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static atomic_int entered;

static void *enter(void *patience)
{
    clb_turn_begin(&discrete_device, *(const double *)patience);
    atomic_fetch_add(&entered, 1);
    return NULL;
}

/* Four calls are on the device at once; others wait for one to end, or until they are impatient. */
static void turns(void *unused)
{
    pthread_t thread;
    double patience = 1000;
    const struct timespec moment = {.tv_nsec = 20000000};
    (void)unused;
    for (int i = 0; i < AT_ONCE; i++)
        clb_turn_begin(&discrete_device, 1000);
    const double begin = clb_now();
    clb_turn_begin(&discrete_device, 0.02);
    expect(clb_now() - begin >= 0.02, "the fifth has not waited");
    expect(pthread_create(&thread, NULL, enter, &patience) == 0, "no thread");
    nanosleep(&moment, NULL);
    clb_turn_end(&discrete_device);
    nanosleep(&moment, NULL);
    expect(atomic_load(&entered) == 0, "four are inside and another enters");
    clb_turn_end(&discrete_device);
    pthread_join(thread, NULL);
    expect(atomic_load(&entered) == 1, "nobody is let in");
    for (int i = 0; i < AT_ONCE; i++)
        clb_turn_end(&discrete_device);
    clb_turn_begin(&discrete_device, 0);
}

/* ---- counted launches ---- */

static clb_status await_barrier(struct clb_queue *queue)
{
    clb_event event = NULL;
    clb_status status = clb_queue_barrier(queue, NULL, &event);
    if (status == CLB_OK)
        status = clb_event_wait(event);
    clb_event_drop(&event);
    return status;
}

/* Launch a kernel twice, the second in vain if `skip`, on queues that no call has used; then finish
 * them, or with `waits` only wait for a later command. */
static clb_status launch_twice(struct clb_runtime *runtime, bool skip, bool waits)
{
    static const char text[] = "kernel void nothing(global volatile uint *chain,\n"
                               "    global volatile uint *report, uint counter, uint launch)\n"
                               "{\n"
                               "    if (chain[counter] == launch - 1)\n"
                               "        chain[counter] = report[counter] = launch;\n"
                               "}\n";
    static const struct clb_source source = {"nothing.cl", text, sizeof text - 1};
    const struct clb_geometry one = {{1}, {1}, 1};
    struct clb_queue_set *set;
    struct clb_program *program;
    if (clb_queue_set_acquire(runtime, &set) != CLB_OK ||
        clb_program_get(runtime, &source, "", &program) != CLB_OK)
        exit(2);
    fake_cl_skip(skip ? 2 : 0, FAKE_NOBODY_REPORTS);
    clb_status status = CLB_OK;
    for (int i = 0; i < 2 && status == CLB_OK; i++)
        status = clb_kernel_launch(set, program, "nothing", &one, (struct clb_order){0}, NULL, 0);
    if (status != CLB_OK)
        return status;
    return waits ? await_barrier(set->queue) : clb_queue_set_finish(set);
}

/* Queues have their launches counted where the allowance is used up, and launch nothing where they
 * could not. */
static void counted(void *own_memory)
{
    struct clb_runtime *runtime = fake_cl_start_device(own_memory != NULL);
    if (runtime == NULL || launch_twice(runtime, false, false) != CLB_OK)
        exit(2);
    const uint64_t limit = runtime->memory_limit;
    clb_status status = CLB_OK;
    runtime->memory_limit = 0;
    for (int i = 0; i < 1100 && status != CLB_ERR_NOMEM; i++) {
        status = launch_twice(runtime, i % 2 == 0, false);
        expect(status == (i >= 1023    ? CLB_ERR_NOMEM
                          : i % 2 == 0 ? CLB_ERR_OPENCL
                                       : CLB_OK),
               "queue %d: %s", i, clb_status_name(status));
    }
    runtime->memory_limit = limit;
    expect(launch_twice(runtime, false, false) == CLB_OK, "a launch with memory again");
    expect(launch_twice(runtime, true, false) == CLB_ERR_OPENCL, "a launch in vain is not noticed");
}

/* A wait says that a launch was left out, also where no events are kept. */
static void awaited(void *own_memory)
{
    struct clb_runtime *runtime = fake_cl_start_device(own_memory != NULL);
    if (runtime == NULL || launch_twice(runtime, false, false) != CLB_OK)
        exit(2);
    runtime->device.quirks |= CLB_QUIRK_FAILS_FOR_GOOD;
    expect(launch_twice(runtime, false, true) == CLB_OK, "launches are missed");
    expect(launch_twice(runtime, true, true) == CLB_ERR_OPENCL, "a launch in vain is not noticed");
}

int main(void)
{
    seed = tap_seed();
    snprintf(directory, sizeof directory, "/tmp/clb-ocl-%ld", (long)getpid());
    if (mkdir(directory, 0700) != 0)
        return 1;
    tap_child("programs are stored and loaded", 30, store_and_load, NULL);
    tap_child("damaged files are refused", 60, damaged, NULL);
    tap_child("a directory that can't be written", 30, not_writable, NULL);
    tap_child("no cache", 30, no_cache, NULL);
    tap_child("a directory that others may write", 30, writable_by_others, NULL);
    tap_child("concurrent writers", 60, concurrent_writers, NULL);
    tap_ok(rmdir(directory) == 0, "nothing is left behind");
    tap_child("allowance, in place", 60, allowance, NULL);
    tap_child("allowance, own memory", 60, allowance, &seed);
    tap_child("buffers are used again", 30, reuse, NULL);
    tap_child("the oldest buffers are given up first", 60, oldest_first, NULL);
    tap_child("a buffer takes at most an eighth more", 30, rounding, NULL);
    tap_child("failing creation, in place", 30, failing_creation, NULL);
    tap_child("failing creation, own memory", 30, failing_creation, &seed);
    tap_child("launches of all queues are counted, in place", 60, counted, NULL);
    tap_child("launches of all queues are counted, own memory", 60, counted, &seed);
    tap_child("a wait for a launch in vain, in place", 30, awaited, NULL);
    tap_child("a wait for a launch in vain, own memory", 30, awaited, &seed);
    tap_child("driver tasks for threads that don't wait for ever", 60, impatient, NULL);
    tap_child("driver tasks of sixteen threads", 60, one_at_a_time, NULL);
    tap_child("calls on the device at once", 20, turns, NULL);
    tap_child("the fake OpenCL keeps the rules", 30, rules, NULL);
    test_choices();
    return tap_done();
}
