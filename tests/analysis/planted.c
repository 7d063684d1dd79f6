/* planted.c - mistakes that the analysis must find: an analysis that misses them checks nothing. No target builds
 * this file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    int number;
};

int twice(struct node *node)
{
    free(node);
    free(node); /* planted: twice */
    return 0;
}

int beyond(int number)
{
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i <= 4; i++)
        number += numbers[i]; /* planted: beyond */
    return number;
}

int never_set(int number)
{
    int other;
    if (number > 0)
        other = number;
    return other; /* planted: never_set */
}

int nothing(const struct node *node)
{
    if (node == NULL)
        printf("%d\n", node->number); /* planted: nothing */
    return 0;
}

int left_open(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    int byte = fgetc(file);
    return byte; /* planted: left_open */
}
