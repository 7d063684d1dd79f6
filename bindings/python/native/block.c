/* block.c - the module mortise._block. It has the code that a signal handler must not interrupt (__exit__, __aexit__, the code
 * that puts a task to sleep, and the call of on_loss), and Keeper, which the garbage collector must not end early.
 *
 * Python handles signals at the first step of a function. So a KeyboardInterrupt may come at the entry of an __exit__ that is
 * written in Python, before its first `try`: the block would end, and its lease would be renewed forever. But Python handles no
 * signal between the end of a block and a function in C. So __exit__ is a function in C. It calls the part that is written in
 * Python, and sees whether that was interrupted:
 *
 *   what happens                               | what the function does
 *   _leave() returns                           | returns its result
 *   _leave() raises, also before its first step| calls _drop(), which releases without waiting; raises the same exception
 *   _drop() is interrupted too                 | calls it again
 *
 * Scope and AsyncScope: one object serves one block: _leave(kind, error, trace), _drop().
 * Block and AsyncBlock: one object serves several blocks. Its __enter__ appends (_key(), entry) to the list _held. The exit
 * takes the last entry with the same key (thread or task), else the last one of any key, because generators and exit stacks
 * may be left by another thread or task: _leave(entry, kind, error, trace), _drop(entry).
 *
 * Waiter: a base class for a future (Outcome in _aio.py). asyncio calls add_done_callback() while it puts a task to sleep. If
 * that raised, the task would sleep forever. So Waiter wraps the callback, so that only the first of several calls has an
 * effect, and keeps it as _wake, beside its _context. Then it calls _register(). If a wake-up may have got lost, it is repeated.
 *
 * call_on_loss(lease) takes the function out of lease._on_loss and calls it. In between there is no step of Python. So a caller
 * that was interrupted before the function began may repeat the call, and the function is called once.
 *
 * Keeper: keeps an object that frees memory when it ends (ffi.gc() of cffi). In a cycle of garbage, Python first calls the
 * finalizers of all objects, in the order of their age: __del__, generators and tasks that are closed at their `yield` or
 * `await`, and also the functions of ffi.gc(). So the memory of a lease could be freed before a `with` in a forgotten generator
 * releases the lease. The collector does not see the object that a Keeper keeps, and takes it for one that is used from outside.
 * So that object ends with its Keeper, which has no finalizer: when all finalizers of the cycle have run, or later if one of them
 * has saved the lease. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { TRIES = 3 }; /* how often to call a function that a signal may interrupt */

static PyObject *word_leave, *word_drop, *word_held, *word_key, *word_register, *word_context,
    *word_wake, *word_on_loss;

/* Calls _drop(), and keeps the exception that is set. entry: NULL if the object itself is dropped. */
static void drop(PyObject *self, PyObject *entry)
{
    PyObject *kind, *value, *trace, *done = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    for (int i = 0; i < TRIES && done == NULL; i++) {
        PyErr_Clear();
        done = PyObject_CallMethodObjArgs(self, word_drop, entry, NULL);
    }
    if (done == NULL)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(done);
    PyErr_Restore(kind, value, trace);
}

static PyObject *leave(PyObject *self, PyObject *entry, PyObject *arguments)
{
    PyObject *method = PyObject_GetAttr(self, word_leave), *result = NULL;
    if (method != NULL)
        result = PyObject_Call(method, arguments, NULL);
    Py_XDECREF(method);
    if (result == NULL)
        drop(self, entry);
    return result;
}

/* Takes an entry out of the list. key: NULL if it is unknown. Runs no code in Python, so no other thread runs in between. */
static PyObject *take(PyObject *held, PyObject *key)
{
    Py_ssize_t count = PyList_Size(held), at = count - 1;
    if (count <= 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "no block of this lock was entered");
        return NULL;
    }
    for (Py_ssize_t i = at; key != NULL && i >= 0; i--) {
        PyObject *pair = PyList_GetItem(held, i),
                 *of = pair != NULL ? PyTuple_GetItem(pair, 0) : NULL;
        int same = of != NULL ? PyObject_RichCompareBool(of, key, Py_EQ) : -1;
        if (same < 0)
            return NULL;
        if (same) {
            at = i;
            break;
        }
    }
    PyObject *pair = PyList_GetItem(held, at),
             *entry = pair != NULL ? PyTuple_GetItem(pair, 1) : NULL;
    if (entry == NULL)
        return NULL;
    Py_INCREF(entry);
    if (PyList_SetSlice(held, at, at + 1, NULL) < 0)
        Py_CLEAR(entry);
    return entry;
}

/* Takes the entry of the block that ends. *interrupted: a signal came meanwhile, and its exception is set. */
static PyObject *take_mine(PyObject *self, int *interrupted)
{
    PyObject *kind = NULL, *value = NULL, *trace = NULL, *entry = NULL;
    PyObject *key = PyObject_CallMethodObjArgs(self, word_key, NULL);
    if (key == NULL) {
        PyErr_Fetch(&kind, &value, &trace);
        key = PyObject_CallMethodObjArgs(self, word_key, NULL);
        PyErr_Clear();
    }
    PyObject *held = PyObject_GetAttr(self, word_held);
    if (held != NULL)
        entry = take(held, key);
    Py_XDECREF(held);
    Py_XDECREF(key);
    *interrupted = kind != NULL;
    if (kind != NULL)
        PyErr_Restore(kind, value, trace);
    return entry;
}

static PyObject *scope_exit(PyObject *self, PyObject *arguments)
{
    return leave(self, NULL, arguments);
}

static PyObject *block_exit(PyObject *self, PyObject *arguments)
{
    PyObject *kind, *error, *trace, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "OOO:__exit__", &kind, &error, &trace))
        return NULL;
    int interrupted;
    PyObject *entry = take_mine(self, &interrupted);
    if (entry == NULL)
        return NULL;
    PyObject *all = interrupted ? NULL : PyTuple_Pack(4, entry, kind, error, trace);
    if (all != NULL)
        result = leave(self, entry, all);
    else
        drop(self, entry);
    Py_XDECREF(all);
    Py_DECREF(entry);
    return result;
}

static PyObject *call_once(PyObject *left, PyObject *argument)
{
    if (PyList_Size(left) < 1)
        Py_RETURN_NONE;
    PyObject *function = PyList_GetItem(left, 0), *result = NULL;
    Py_XINCREF(function);
    if (function != NULL && PyList_SetSlice(left, 0, 1, NULL) == 0)
        result = PyObject_CallFunctionObjArgs(function, argument, NULL);
    Py_XDECREF(function);
    return result;
}

static PyObject *once(PyObject *function)
{
    static PyMethodDef definition = {"call_once", call_once, METH_O, "Calls the function, once."};
    PyObject *left = PyList_New(0), *result = NULL;
    if (left != NULL && PyList_Append(left, function) == 0)
        result = PyCFunction_New(&definition, left);
    Py_XDECREF(left);
    return result;
}

static PyObject *add_waiter(PyObject *self, PyObject *arguments, PyObject *words)
{
    PyObject *function, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "O:add_done_callback", &function))
        return NULL;
    PyObject *wake = once(function), *all = wake != NULL ? PyTuple_Pack(1, wake) : NULL;
    PyObject *context = words != NULL ? PyDict_GetItemString(words, "context") : NULL;
    PyObject *method = PyObject_GetAttr(self, word_register);
    if (all != NULL && method != NULL &&
        PyObject_SetAttr(self, word_context, context != NULL ? context : Py_None) == 0 &&
        PyObject_SetAttr(self, word_wake, wake) == 0)
        result = PyObject_Call(method, all, words);
    Py_XDECREF(method);
    Py_XDECREF(all);
    Py_XDECREF(wake);
    return result;
}

static PyObject *call_on_loss(PyObject *module, PyObject *lease)
{
    (void)module;
    PyObject *function = PyObject_GetAttr(lease, word_on_loss);
    if (function == NULL || function == Py_None)
        return function;
    PyObject *result = NULL;
    if (PyObject_SetAttr(lease, word_on_loss, Py_None) == 0)
        result = PyObject_CallFunctionObjArgs(function, lease, NULL);
    Py_DECREF(function);
    return result;
}

struct keeper {
    PyObject_HEAD PyObject *kept;
};

static PyObject *keeper_new(PyTypeObject *type, PyObject *arguments, PyObject *words)
{
    PyObject *kept;
    (void)words;
    if (!PyArg_ParseTuple(arguments, "O:Keeper", &kept))
        return NULL;
    struct keeper *keeper = PyObject_New(struct keeper, type);
    if (keeper == NULL)
        return NULL;
    Py_INCREF(kept);
    keeper->kept = kept;
    return (PyObject *)keeper;
}

static void keeper_end(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((struct keeper *)(void *)self)->kept);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int add_spec(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int added =
        type == NULL ? -1 : PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type);
    Py_XDECREF(type);
    return added;
}

static int add_type(PyObject *module, const char *name, PyMethodDef *methods)
{
    PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, NULL}};
    PyType_Spec spec = {name, 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return add_spec(module, &spec);
}

/* Keeper has no Py_TPFLAGS_HAVE_GC, so that the collector does not look into it: that is its purpose. */
static int add_keeper(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_new, (void *)keeper_new}, {Py_tp_dealloc, (void *)keeper_end}, {0, NULL}};
    PyType_Spec spec = {"mortise._block.Keeper", sizeof(struct keeper), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    return add_spec(module, &spec);
}

static int fill(PyObject *module)
{
    static PyMethodDef scope[] = {{"__exit__", scope_exit, METH_VARARGS, "Ends the block."}, {0}};
    static PyMethodDef async_scope[] = {{"__aexit__", scope_exit, METH_VARARGS, "Ends the block."},
                                        {0}};
    static PyMethodDef block[] = {{"__exit__", block_exit, METH_VARARGS, "Ends the block."}, {0}};
    static PyMethodDef async_block[] = {{"__aexit__", block_exit, METH_VARARGS, "Ends the block."},
                                        {0}};
    static PyMethodDef waiter[] = {{"add_done_callback", (PyCFunction)(void (*)(void))add_waiter,
                                    METH_VARARGS | METH_KEYWORDS, "Adds the task that waits."},
                                   {0}};
    static const struct {
        PyObject **word;
        const char *text;
    } words[] = {{&word_leave, "_leave"},       {&word_drop, "_drop"},
                 {&word_held, "_held"},         {&word_key, "_key"},
                 {&word_register, "_register"}, {&word_context, "_context"},
                 {&word_wake, "_wake"},         {&word_on_loss, "_on_loss"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if ((*words[i].word = PyUnicode_InternFromString(words[i].text)) == NULL)
            return -1;
    return add_type(module, "mortise._block.Scope", scope) +
           add_type(module, "mortise._block.AsyncScope", async_scope) +
           add_type(module, "mortise._block.Block", block) +
           add_type(module, "mortise._block.AsyncBlock", async_block) +
           add_type(module, "mortise._block.Waiter", waiter) + add_keeper(module);
}

PyMODINIT_FUNC PyInit__block(void)
{
    static PyMethodDef functions[] = {
        {"call_on_loss", call_on_loss, METH_O, "Calls lease._on_loss(lease), once."}, {0}};
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "mortise._block", NULL, -1, functions, NULL, NULL, NULL, NULL};
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && fill(module) < 0)
        Py_CLEAR(module);
    return module;
}
