/* Answers that are not true: sizes that queries report, and numbers that are read back from the
 * device. SPDX-License-Identifier: BSD-3-Clause */
#include "fakecl.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static struct clb_cl below;

bool fake_cl_flip_bit(void *at, bool single, size_t bit)
{
    union {
        float s;
        double d;
        uint32_t bits_s;
        uint64_t bits_d;
    } value = {.d = 0};
    const size_t element = single ? sizeof value.s : sizeof value.d;
    memcpy(&value, at, element);
    const double magnitude = fabs(single ? (double)value.s : value.d);
    if (!(magnitude > 1e-3 && magnitude < 1e3))
        return false;
    if (single)
        value.bits_s ^= UINT32_C(1) << (bit == 4 ? 31 : 25 + bit);
    else
        value.bits_d ^= UINT64_C(1) << (bit == 4 ? 63 : 54 + bit);
    memcpy(at, &value, element);
    return true;
}

/* ---- reads ---- */

void fake_cl_flip_read(long at, bool single, uint64_t seed)
{
    fake_cl.flip_at = at;
    fake_cl.flip_single = single;
    fake_cl.flip_seed = seed;
    fake_cl.flip_spoils = false;
    fake_cl.flipped = 0;
    fake_cl.reads = 0;
}

static bool is_chosen(void)
{
    return ++fake_cl.reads == fake_cl.flip_at;
}

/* What was read: rows of `bytes`, `pitch` apart. */
static void flip(char *host, size_t rows, size_t bytes, size_t pitch)
{
    const size_t element = fake_cl.flip_single ? sizeof(float) : sizeof(double);
    uint64_t *seed = &fake_cl.flip_seed;
    for (int attempt = 0; attempt < 1000 && bytes >= element && rows > 0; attempt++) {
        char *at =
            host + random_below(seed, rows) * pitch + random_below(seed, bytes / element) * element;
        if (fake_cl_flip_bit(at, fake_cl.flip_single, random_below(seed, 5))) {
            if (fake_cl.flip_spoils)
                memcpy(at, fake_cl.flip_single ? (const void *)&(float){NAN} : &(double){NAN},
                       element);
            fake_cl.flipped++;
            return;
        }
    }
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                      size_t offset, size_t size, void *host, cl_uint waits,
                                      const cl_event *wait_list, cl_event *event)
{
    const bool chosen = is_chosen();
    cl_int status = below.EnqueueReadBuffer(queue, mem, chosen ? CL_TRUE : blocking, offset, size,
                                            host, waits, wait_list, event);
    if (chosen && status == CL_SUCCESS)
        flip(host, 1, size, size);
    return status;
}

static cl_int CL_API_CALL read_rect(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                    const size_t *origin, const size_t *host_origin,
                                    const size_t *region, size_t row_pitch, size_t slice_pitch,
                                    size_t host_pitch, size_t host_slice_pitch, void *host,
                                    cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    const bool chosen = is_chosen();
    cl_int status = below.EnqueueReadBufferRect(
        queue, mem, chosen ? CL_TRUE : blocking, origin, host_origin, region, row_pitch,
        slice_pitch, host_pitch, host_slice_pitch, host, waits, wait_list, event);
    if (chosen && status == CL_SUCCESS)
        flip((char *)host + host_origin[0] + host_origin[1] * host_pitch, region[1], region[0],
             host_pitch);
    return status;
}

static void *CL_API_CALL map_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                    cl_map_flags flags, size_t offset, size_t size, cl_uint waits,
                                    const cl_event *wait_list, cl_event *event, cl_int *status)
{
    const bool chosen = (flags & CL_MAP_READ) != 0 && is_chosen();
    void *mapped = below.EnqueueMapBuffer(queue, mem, chosen ? CL_TRUE : blocking, flags, offset,
                                          size, waits, wait_list, event, status);
    if (chosen && mapped != NULL)
        flip(mapped, 1, size, size);
    return mapped;
}

/* ---- queries ---- */

static size_t garbage(void)
{
    static const size_t sizes[] = {0,       1, 3, (size_t)1 << 31, (size_t)1 << 32, (size_t)1 << 62,
                                   SIZE_MAX};
    const size_t choice = random_below(&fake_cl.lie_seed, 2 * CLB_COUNT_OF(sizes));
    return choice < CLB_COUNT_OF(sizes) ? sizes[choice] : random_bits(&fake_cl.lie_seed);
}

void fake_cl_lie(long at, uint64_t seed)
{
    fake_cl.lie_at = at;
    fake_cl.lie_seed = seed;
    fake_cl.lies = 0;
    fake_cl.queries = 0;
}

/* An answer of `size` bytes that is a number of bytes or other things, or several; and how many
 * bytes the whole answer has. */
static void lie(cl_int status, void *value, size_t size, size_t *needed)
{
    if (status != CL_SUCCESS || (value == NULL && needed == NULL) ||
        ++fake_cl.queries != fake_cl.lie_at)
        return;
    fake_cl.lies++;
    for (size_t done = 0; value != NULL && done < size; done += sizeof(size_t)) {
        const size_t number = garbage();
        memcpy((char *)value + done, &number, clb_min(size - done, sizeof number));
    }
    if (needed != NULL)
        *needed = garbage();
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t size,
                                      void *value, size_t *needed)
{
    cl_int status = below.GetDeviceInfo(device, name, size, value, needed);
    switch (name) {
    case CL_DEVICE_MAX_COMPUTE_UNITS:
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
    case CL_DEVICE_LOCAL_MEM_SIZE:
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
        lie(status, value, size, needed);
        break;
    default: /* a name */
        lie(status, NULL, 0, needed);
    }
    return status;
}

static cl_int CL_API_CALL kernel_info(cl_kernel kernel, cl_device_id device,
                                      cl_kernel_work_group_info name, size_t size, void *value,
                                      size_t *needed)
{
    cl_int status = below.GetKernelWorkGroupInfo(kernel, device, name, size, value, needed);
    lie(status, value, size, needed);
    return status;
}

static cl_int CL_API_CALL program_info(cl_program program, cl_program_info name, size_t size,
                                       void *value, size_t *needed)
{
    const bool sizes = name == CL_PROGRAM_BINARY_SIZES || name == CL_PROGRAM_NUM_DEVICES;
    cl_int status = below.GetProgramInfo(program, name, size, value, needed);
    size_t true_size = 0;
    if (name == CL_PROGRAM_BINARY_SIZES && value != NULL)
        memcpy(&true_size, value, sizeof true_size);
    lie(status, sizes ? value : NULL, size, needed);
    /* CL_PROGRAM_BINARIES writes as many bytes as it has: no caller survives a size that is too
     * small, unless it is 0. */
    if (true_size != 0 && *(size_t *)value != 0 && *(size_t *)value < true_size)
        memcpy(value, &true_size, sizeof true_size);
    return status;
}

static cl_int CL_API_CALL build_info(cl_program program, cl_device_id device,
                                     cl_program_build_info name, size_t size, void *value,
                                     size_t *needed)
{
    cl_int status = below.GetProgramBuildInfo(program, device, name, size, value, needed);
    lie(status, NULL, 0, needed);
    return status;
}

static cl_int CL_API_CALL platforms(cl_uint count, cl_platform_id *ids, cl_uint *found)
{
    cl_int status = below.GetPlatformIDs(count, ids, found);
    lie(status, found, found != NULL ? sizeof *found : 0, NULL);
    return status;
}

static cl_int CL_API_CALL devices(cl_platform_id platform, cl_device_type type, cl_uint count,
                                  cl_device_id *ids, cl_uint *found)
{
    cl_int status = below.GetDeviceIDs(platform, type, count, ids, found);
    lie(status, found, found != NULL ? sizeof *found : 0, NULL);
    return status;
}

void fake_cl_add_lying(struct clb_cl *table)
{
    below = *table;
    table->EnqueueReadBuffer = read_buffer;
    table->EnqueueReadBufferRect = read_rect;
    table->EnqueueMapBuffer = map_buffer;
    table->GetDeviceInfo = device_info;
    table->GetKernelWorkGroupInfo = kernel_info;
    table->GetProgramInfo = program_info;
    table->GetProgramBuildInfo = build_info;
    table->GetPlatformIDs = platforms;
    table->GetDeviceIDs = devices;
}
