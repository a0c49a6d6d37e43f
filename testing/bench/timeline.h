/* timeline: what the commands of one call took on the device, from src/ocl/profile.c. */
#ifndef TIMELINE_H
#define TIMELINE_H

/* Forget the commands so far. */
void bench_timeline_clear(void);

/* Print the time of each kind of command since then, and write a trace of all of them to `path`
 * that the Perfetto and chrome://tracing viewers open. */
void bench_timeline(const char *path);

#endif
