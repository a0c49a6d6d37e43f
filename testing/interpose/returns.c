/* A program that returns from main: with handlers, its arguments and its environment. */
#include <stdio.h>
#include <stdlib.h>
extern char **environ;
static void handle(void)
{
    puts("handled");
}
int main(int argc, char **argv, char **environment)
{
    atexit(handle);
    printf("%d ", argc);
    return argv[argc] == NULL && environment == environ ? 5 : 1;
}
