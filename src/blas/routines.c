/* The table of routines, expanded from routines.def. */
#include "routines.h"

static const struct clb_routine_info routines[CLB_ROUTINES] = {
#define CLB_NAME(full_name, letter, STEM, SIGNATURE, SHAPES, LIMITS, TRANS, TRANS_COMPLEX, FLAGS,  \
                 SIZES, OPS, OTHERS)                                                               \
    [CLB_ROUTINE_##full_name] = {.name = #full_name,                                               \
                                 .stem = #STEM,                                                    \
                                 .precision = CLB_##letter,                                        \
                                 .signature = SIGNATURE,                                           \
                                 .shapes = SHAPES,                                                 \
                                 .limits = LIMITS,                                                 \
                                 .trans = CLB_##letter < CLB_C ? TRANS : TRANS_COMPLEX,            \
                                 .flags = FLAGS,                                                   \
                                 .sizes = SIZES,                                                   \
                                 .ops = #OPS,                                                      \
                                 .others = OTHERS,                                                 \
                                 .work = clb_work_##STEM},
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, kind, ops, others)                                         \
    CLB_NAMES_##precisions(CLB_NAME, stem, stem, signature, shapes, limits, trans, trans_complex,  \
                           flags, sizes, ops, others)
#include "routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
};

const struct clb_routine_info *clb_routine_get(clb_routine routine)
{
    return &routines[routine];
}
