/* Panels copied between the device and the CPU, see panel_staging.h. */
#include "panel_staging.h"

#include <string.h>

clb_status clb_panel_staging_open(struct clb_panel_staging *staging,
                                  struct clb_workspace *workspace, size_t rows, size_t cols)
{
    *staging = (struct clb_panel_staging){
        .workspace = workspace, .element = clb_precision_size(workspace->variant->precision)};
    return clb_buffer_get(workspace->runtime, CLB_MEMORY_HOST, rows * cols * staging->element,
                          &staging->pinned);
}

void clb_panel_staging_close(struct clb_panel_staging *staging, bool idle)
{
    if (staging->workspace == NULL)
        return;
    if (staging->down != NULL)
        clb_event_release(staging->down);
    clb_buffer_end(staging->workspace->runtime, staging->pinned, idle);
}

void clb_panel_staging_fill(struct clb_panel_staging *staging, size_t rows, size_t cols,
                            const void *a, size_t lda)
{
    size_t bytes = rows * staging->element;
    for (size_t j = 0; j < cols; j++)
        memcpy((char *)staging->pinned->host + j * bytes,
               (const char *)a + j * lda * staging->element, bytes);
}

clb_status clb_panel_staging_up(struct clb_panel_staging *staging, const struct clb_dmat *panel)
{
    const struct clb_workspace *workspace = staging->workspace;
    clb_status status = clb_dmat_write(workspace->queue_set->upload, panel, staging->element,
                                       staging->pinned->host, panel->rows, NULL);
    if (status == CLB_OK)
        status = clb_queue_join(workspace->queue_set->upload, workspace->queue);
    return status;
}

clb_status clb_panel_staging_down(struct clb_panel_staging *staging, const struct clb_dmat *panel)
{
    const struct clb_workspace *workspace = staging->workspace;
    struct clb_queue *download = workspace->queue_set->download;
    clb_status status = clb_queue_join(workspace->queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, panel, staging->element, staging->pinned->host,
                               panel->rows, &staging->down);
    if (status == CLB_OK)
        status = clb_queue_flush(download);
    return status;
}

clb_status clb_panel_staging_await(struct clb_panel_staging *staging)
{
    if (staging->down == NULL)
        return CLB_OK;
    return clb_queue_set_await(staging->workspace->queue_set, &staging->down);
}
