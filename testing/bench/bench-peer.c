/* One way to multiply matrices, in a process of its own, for peers.py.
 *
 * usage: bench-peer PEER        PEER: shim, next, preloaded, resident, clblast, cublas,
 *                               link, where
 *
 * Reads tasks from stdin, a line each, and answers each with a line:
 *   run P M N K warm|fresh      seconds that one C = A*B took; P is one of s, d, c, z
 *   drop                        gives the matrices back, answers 0
 * Matrices are kept from task to task as long as the sizes are the same. Before the first time
 * there is an untimed product, which is judged. What goes wrong is said on stderr and ends the
 * process. SPDX-License-Identifier: BSD-3-Clause
 *
 *   shim       xGEMM of BENCH_SHIM on memory of the host; its report must name the device
 *   next       the same of BENCH_OPENBLAS
 *   preloaded  the same of whatever LD_PRELOAD put there (NVBLAS)
 *   resident   the shim's kernels, packing included, on operands that are on the device
 *   clblast    CLBlast on such operands; BENCH_CLBLAST names the library
 *   cublas     cuBLAS, on CUDA's first device, without TF32
 *   link       `run` answers with the seconds that M MiB of pinned memory take up, `fresh`: down
 *   where      prints the paths of the shim and OpenBLAS and ends */
#include "tools/command/peers.h"
#include "tools/command/trial.h"
#include "resident.h"
#include "report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Launches on the device are repeated for at least so long, and the mean is taken. */
#define LEAST 0.05

struct task {
    int precision;
    size_t m, n, k;
    bool fresh;
};

/* How a peer does a task. */
struct peer {
    const char *name;
    void (*start)(void);
    void (*open)(const struct task *task); /* matrices, first product, check */
    double (*run)(const struct task *task);
    void (*close)(void);
};

static size_t element_bytes(int precision)
{
    return bench_real_size(precision) * (size_t)bench_parts(precision);
}

static bool is_right(const struct task *task, void *const matrix[3])
{
    return clb_trial_product_is_right((clb_precision)task->precision, task->m, task->n, task->k,
                                      matrix[0], matrix[1], matrix[2]);
}

static void wrong(const struct task *task)
{
    bench_fail("%cGEMM %zu x %zu x %zu: WRONG", BENCH_PRECISIONS[task->precision], task->m, task->n,
               task->k);
}

/* ---- xGEMM on memory of the host ---- */

typedef void gemm(const char *, const char *, const int *, const int *, const int *, const void *,
                  const void *, const int *, const void *, const int *, const void *, void *,
                  const int *, size_t, size_t);

static struct {
    void (*gemm[4])(void);
    void *shim; /* the handle, when that is the peer */
    size_t calls[4];
    void *matrix[3];
    size_t bytes[3];
} host;

static void start_with(void *handle)
{
    for (int i = 0; i < 4; i++) {
        char name[] = "?gemm_";
        name[0] = BENCH_PRECISIONS[i];
        host.gemm[i] = bench_symbol(handle, name);
    }
}

static void start_shim(void)
{
    host.shim = bench_open(bench_shim());
    start_with(host.shim);
}

static void start_next(void)
{
    start_with(bench_open(bench_openblas()));
}

static void start_preloaded(void)
{
    start_with(RTLD_DEFAULT);
}

static double run_host(const struct task *task)
{
    static const double one_d[2] = {1}, zero[2];
    static const float one_s[2] = {1};
    bool single = bench_real_size(task->precision) == sizeof(float);
    const int m = (int)task->m, n = (int)task->n, k = (int)task->k;
    if (task->fresh) {
        munmap(host.matrix[2], host.bytes[2]);
        host.matrix[2] = bench_memory(host.bytes[2]);
    }
    double begin = bench_now();
    ((gemm *)host.gemm[task->precision])("N", "N", &m, &n, &k, single ? (const void *)one_s : one_d,
                                         host.matrix[0], &m, host.matrix[1], &k, zero,
                                         host.matrix[2], &m, 1, 1);
    double seconds = bench_now() - begin;
    host.calls[task->precision]++;
    return seconds;
}

static void check_report(int precision)
{
    typedef size_t report_function(char *, size_t);
    static char report[65536];
    char name[] = "?gemm_";
    name[0] = BENCH_PRECISIONS[precision];
    ((report_function *)bench_symbol(host.shim, "clblas_shim_report"))(report, sizeof report);
    if (report_number(report, name, "device") != (double)host.calls[precision])
        bench_fail("not all of %zu calls ran on the device: %s", host.calls[precision], report);
}

static void open_host(const struct task *task)
{
    const size_t elements[3] = {task->m * task->k, task->k * task->n, task->m * task->n};
    for (int i = 0; i < 3; i++) {
        host.bytes[i] = elements[i] * element_bytes(task->precision);
        host.matrix[i] = bench_memory(host.bytes[i]);
        if (i < 2)
            bench_fill(host.matrix[i], elements[i], task->precision, (uint64_t)i + 1);
        else
            memset(host.matrix[i], 0xff, host.bytes[i]);
    }
    run_host(task);
    if (!is_right(task, host.matrix))
        wrong(task);
    if (host.shim != NULL)
        check_report(task->precision);
}

static void close_host(void)
{
    for (int i = 0; i < 3; i++)
        munmap(host.matrix[i], host.bytes[i]);
}

/* ---- on the device ---- */

static struct clb_runtime *runtime;
static struct resident resident;
static size_t launches;

static void start_device(void)
{
    runtime = resident_start_device();
}

static double run_resident(const struct task *task)
{
    (void)task;
    resident_time(&resident, true, true, LEAST, &launches);
    return resident_time(&resident, true, true, LEAST, &launches);
}

static void open_resident(const struct task *task)
{
    launches = 1;
    if (!resident_open(&resident, runtime, (clb_precision)task->precision, task->m, task->n,
                       task->k))
        bench_fail("no kernel for this precision");
    run_resident(task);
    if (!resident_right(&resident))
        wrong(task);
}

static void close_resident(void)
{
    resident_close(&resident);
}

/* ---- CLBlast and cuBLAS ---- */

static const struct clb_peer *other;
static int other_precision = -1; /* for which it has been opened */

static void start_clblast(void)
{
    other = clb_peer_find("clblast");
    start_device();
}

static void start_cublas(void)
{
    other = clb_peer_find("cublas");
}

static void enqueue_other(void *argument)
{
    const struct task *task = argument;
    if (!other->multiply(task->m, task->n, task->k))
        bench_fail("%s fails", other->name);
}

static void finish_other(void *unused)
{
    (void)unused;
    if (!other->finish())
        bench_fail("%s fails", other->name);
}

static double run_other(const struct task *task)
{
    struct task copy = *task;
    bench_repeat(enqueue_other, finish_other, &copy, LEAST, &launches);
    return bench_repeat(enqueue_other, finish_other, &copy, LEAST, &launches);
}

static void open_other(const struct task *task)
{
    const size_t elements[3] = {task->m * task->k, task->k * task->n, task->m * task->n};
    size_t bytes[3];
    void *matrix[3];
    struct clb_queue_set *queue_set = NULL;
    launches = 1;
    if (other->on_our_device)
        resident_need(clb_queue_set_acquire(runtime, &queue_set), "queue");
    if (other_precision != task->precision &&
        !other->open((clb_precision)task->precision, queue_set))
        bench_fail("%s is not there", other->name);
    other_precision = task->precision;
    for (int i = 0; i < 3; i++)
        bytes[i] = elements[i] * element_bytes(task->precision);
    bool good = other->reserve(bytes);
    for (int i = 0; i < 3; i++) {
        matrix[i] = bench_memory(bytes[i]);
        bench_fill(matrix[i], elements[i], task->precision, (uint64_t)i + 1);
        good = good && (i == 2 || other->write(i, matrix[i], bytes[i]));
    }
    if (!good)
        bench_fail("%s gets no memory", other->name);
    run_other(task);
    good = other->read(matrix[2], bytes[2]);
    if (!good || !is_right(task, matrix))
        wrong(task);
    for (int i = 0; i < 3; i++)
        bench_release(matrix[i], bytes[i]);
}

static void close_other(void)
{
}

/* ---- the link ---- */

static struct clb_buffer *pinned, *device;
static struct clb_queue_set *link_lane;

static void open_link(const struct task *task)
{
    size_t bytes = task->m << 20;
    resident_need(clb_queue_set_acquire(runtime, &link_lane), "queue");
    resident_need(clb_buffer_get(runtime, CLB_MEMORY_HOST, bytes, &pinned), "memory");
    resident_need(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, bytes, &device), "memory");
    memset(pinned->host, 1, bytes);
}

static double run_link(const struct task *task)
{
    size_t bytes = task->m << 20;
    double begin = bench_now();
    clb_status status =
        task->fresh ? clb_queue_read_now(link_lane->queue, device->mem, 0, bytes, pinned->host)
                    : clb_queue_write_now(link_lane->queue, device->mem, 0, bytes, pinned->host);
    resident_need(status, "link");
    return bench_now() - begin;
}

static void close_link(void)
{
    clb_buffer_end(runtime, pinned, true);
    clb_buffer_end(runtime, device, true);
    clb_queue_set_end(link_lane, true);
}

/* ---- tasks ---- */

static const struct peer peers[] = {
    {"shim", start_shim, open_host, run_host, close_host},
    {"next", start_next, open_host, run_host, close_host},
    {"preloaded", start_preloaded, open_host, run_host, close_host},
    {"resident", start_device, open_resident, run_resident, close_resident},
    {"clblast", start_clblast, open_other, run_other, close_other},
    {"cublas", start_cublas, open_other, run_other, close_other},
    {"link", start_device, open_link, run_link, close_link},
};

static bool same_sizes(const struct task *x, const struct task *y)
{
    return x->precision == y->precision && x->m == y->m && x->n == y->n && x->k == y->k;
}

static void serve(const struct peer *peer, FILE *answers)
{
    char line[256], letter, memory[8];
    struct task now = {.precision = -1}, next = now;
    while (fgets(line, sizeof line, stdin) != NULL) {
        double seconds = 0;
        bool run =
            sscanf(line, "run %c %zu %zu %zu %7s", &letter, &next.m, &next.n, &next.k, memory) == 5;
        next.precision = run ? bench_precision(letter) : -1;
        next.fresh = run && strcmp(memory, "fresh") == 0;
        if (now.precision >= 0 && !same_sizes(&now, &next))
            peer->close();
        if (next.precision >= 0 && !same_sizes(&now, &next))
            peer->open(&next);
        now = next;
        if (now.precision >= 0)
            seconds = peer->run(&now);
        fprintf(answers, "%.9g\n", seconds);
        fflush(answers);
    }
}

int main(int count, char **arguments)
{
    const char *name = count == 2 ? arguments[1] : "";
    if (strcmp(name, "where") == 0) {
        const char *shim = bench_shim(), *openblas = bench_openblas();
        printf("%s\n%s\n%s\n", shim != NULL ? shim : "", openblas != NULL ? openblas : "",
               bench_has_avx512() ? "SkylakeX" : "");
        return 0;
    }
    for (size_t i = 0; i < CLB_COUNT_OF(peers); i++) {
        if (strcmp(name, peers[i].name) != 0)
            continue;
        /* Libraries that print to stdout must not be taken for an answer. */
        FILE *answers = fdopen(dup(STDOUT_FILENO), "w");
        if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            bench_fail("no stdout");
        peers[i].start();
        serve(&peers[i], answers);
        return 0;
    }
    bench_fail("see the head of bench-peer.c");
}
