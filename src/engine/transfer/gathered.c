/* Gathered transfers, of small matrices. SPDX-License-Identifier: BSD-3-Clause */
#include "transfer_queue.h"

/* The buffer has one of few sizes, so that a kept one fits. */
#define GATHERED_LEAST ((size_t)2 << 20)

clb_status clb_gathered_open(struct clb_transfer_queue *transfers)
{
    size_t bytes = GATHERED_LEAST;
    while (bytes < transfers->gathered.bytes)
        bytes *= 2;
    return clb_buffer_get(transfers->runtime, CLB_MEMORY_HOST, bytes, &transfers->gathered.buffer);
}

char *clb_gathered_place(const struct clb_transfer_queue *transfers,
                         const struct clb_transfer *transfer, const struct clb_rect *rect)
{
    return (char *)transfers->gathered.buffer->host + transfer->at +
           rect->col * transfer->slot_ld * transfers->element;
}

void clb_gathered_copy(struct clb_transfer_queue *transfers, size_t piece)
{
    struct clb_rect rect;
    const struct clb_transfer *transfer = clb_transfer_of(transfers, false, piece, &rect);
    (void)transfers->copy(transfers->context, transfer, &rect,
                          clb_gathered_place(transfers, transfer, &rect));
    pthread_mutex_lock(&transfers->lock);
    transfers->done[CLB_UP][piece] = true;
    clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
}

bool clb_gathered_send(struct clb_transfer_queue *transfers)
{
    const size_t first = transfers->gathered.sent;
    if (first == transfers->pieces[CLB_UP] || !transfers->done[CLB_UP][first] || transfers->stopped)
        return false;
    struct clb_rect rect;
    struct clb_transfer *transfer = clb_transfer_of(transfers, false, first, &rect);
    size_t end = first + 1;
    for (; end < transfer->first_piece + transfer->pieces && transfers->done[CLB_UP][end]; end++)
        rect.cols += clb_transfer_piece(transfer, end - transfer->first_piece).cols;
    pthread_mutex_unlock(&transfers->lock);
    clb_event moved = NULL;
    clb_status status = clb_transfer_queue_enqueue(
        transfers, transfer, 0, &rect, clb_gathered_place(transfers, transfer, &rect), &moved);
    pthread_mutex_lock(&transfers->lock);
    transfers->event[CLB_UP][end - 1] = moved;
    transfers->gathered.sent = end;
    transfer->done += status == CLB_OK ? end - first : 0;
    if (status != CLB_OK)
        clb_transfer_queue_fail(transfers, status);
    return true;
}

bool clb_gathered_receive(struct clb_transfer_queue *transfers, bool waits)
{
    const size_t piece = transfers->released[CLB_DOWN];
    if (piece == transfers->gathered.asked)
        return false;
    clb_event *event = &transfers->event[CLB_DOWN][piece];
    if (*event != NULL && !waits && clb_event_is_pending(*event))
        return false;
    pthread_mutex_unlock(&transfers->lock);
    struct clb_rect rect;
    const struct clb_transfer *transfer = clb_transfer_of(transfers, true, piece, &rect);
    const clb_status status = clb_transfer_queue_arrive(transfers, transfer, event);
    pthread_mutex_lock(&transfers->lock);
    transfers->released[CLB_DOWN] += status == CLB_OK;
    if (status == CLB_OK)
        clb_transfer_queue_wake(transfers, &transfers->work, 1);
    else
        clb_transfer_queue_fail(transfers, status);
    return true;
}

bool clb_gathered_advance(struct clb_transfer_queue *transfers, bool down)
{
    if (clb_gathered_send(transfers) || clb_gathered_receive(transfers, false))
        return true;
    if (transfers->next[CLB_UP] == transfers->pieces[CLB_UP] || transfers->stopped)
        return down && clb_gathered_receive(transfers, true);
    const size_t piece = transfers->next[CLB_UP]++;
    pthread_mutex_unlock(&transfers->lock);
    clb_gathered_copy(transfers, piece);
    pthread_mutex_lock(&transfers->lock);
    return true;
}

clb_status clb_gathered_ask(struct clb_transfer_queue *transfers,
                            const struct clb_transfer *transfer)
{
    clb_status status = CLB_OK;
    for (size_t p = 0; p < transfer->pieces && status == CLB_OK; p++) {
        const size_t piece = transfer->first_piece + p;
        const struct clb_rect rect = clb_transfer_piece(transfer, p);
        if (transfers->written == NULL || !transfers->written[piece])
            status = clb_transfer_queue_enqueue(transfers, transfer, 0, &rect,
                                                clb_gathered_place(transfers, transfer, &rect),
                                                &transfers->event[CLB_DOWN][piece]);
        transfers->gathered.asked += status == CLB_OK;
    }
    return status;
}
