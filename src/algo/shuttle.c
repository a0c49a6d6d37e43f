/* Panels on their way between the device and the CPU, see shuttle.h. */
#include "shuttle.h"

#include <string.h>

clb_status clb_shuttle_open(struct clb_shuttle *shuttle, struct clb_engine *engine, size_t rows,
                            size_t cols)
{
    *shuttle = (struct clb_shuttle){.engine = engine,
                                    .element = clb_precision_size(engine->variant->precision)};
    return clb_buffer_get(engine->runtime, CLB_MEMORY_HOST, rows * cols * shuttle->element,
                          &shuttle->pinned);
}

void clb_shuttle_close(struct clb_shuttle *shuttle, bool idle)
{
    if (shuttle->engine == NULL)
        return;
    if (shuttle->down != NULL)
        clb_cl.ReleaseEvent(shuttle->down);
    clb_buffer_end(shuttle->engine->runtime, shuttle->pinned, idle);
}

void clb_shuttle_fill(struct clb_shuttle *shuttle, size_t rows, size_t cols, const void *a,
                      size_t lda)
{
    size_t bytes = rows * shuttle->element;
    for (size_t j = 0; j < cols; j++)
        memcpy((char *)shuttle->pinned->host + j * bytes,
               (const char *)a + j * lda * shuttle->element, bytes);
}

clb_status clb_shuttle_up(struct clb_shuttle *shuttle, const struct clb_dmat *panel)
{
    const struct clb_engine *engine = shuttle->engine;
    clb_status status = clb_dmat_write(engine->lane->upload, panel, shuttle->element,
                                       shuttle->pinned->host, panel->rows, NULL);
    if (status == CLB_OK)
        status = clb_queue_join(engine->lane->upload, engine->queue);
    return status;
}

clb_status clb_shuttle_down(struct clb_shuttle *shuttle, const struct clb_dmat *panel)
{
    const struct clb_engine *engine = shuttle->engine;
    struct clb_queue *download = engine->lane->download;
    clb_status status = clb_queue_join(engine->queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, panel, shuttle->element, shuttle->pinned->host,
                               panel->rows, &shuttle->down);
    if (status == CLB_OK)
        status = clb_queue_flush(download);
    return status;
}

clb_status clb_shuttle_await(struct clb_shuttle *shuttle)
{
    if (shuttle->down == NULL)
        return CLB_OK;
    return clb_lane_await(shuttle->engine->lane, &shuttle->down);
}
