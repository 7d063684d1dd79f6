/* module.c - a module that compiles with the headers of 0.1 and with those of today, of the KIND that is defined. It does
 * nothing: it is opened and closed. */
#include <mortise/driver.h>

static mortise_status module_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    (void)error;
    *ctx = args->host;
    return MORTISE_OK;
}

static void module_start(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx, (void)ops, (void)n;
}

static void module_cancel(void *ctx, mortise_op *op)
{
    (void)ctx, (void)op;
}

static size_t module_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    (void)ctx, (void)fds, (void)capacity, (void)due_ns;
    return 0;
}

static void module_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    (void)ctx, (void)ready, (void)n;
}

static void module_observe(void *ctx, const mortise_event *event)
{
    (void)ctx, (void)event;
}

static void module_close(void *ctx)
{
    (void)ctx;
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = KIND,
    .name = "module",
    .version = "1",
    .summary = "does nothing",
    .open = module_open,
    .start = module_start,
    .cancel = module_cancel,
    .interest = module_interest,
    .turn = module_turn,
    .close = module_close,
    .observe = KIND == MORTISE_KIND_OBSERVER ? module_observe : NULL,
};
