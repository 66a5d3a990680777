/* What `am.agent.memo` is where it is compiled: entries in the order in which they came, and a table of hashes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t hash;
    PyObject *objects, *values, *result;
} Entry;

typedef struct {
    PyObject_HEAD
    Py_ssize_t most_parts, parts; /* kept at most, and now */
    Py_ssize_t count, room;       /* entries, and how many there is room for */
    Entry *entry;
    Py_ssize_t slots; /* a power of two, more than twice the entries */
    int32_t *slot;    /* the place of an entry, from 1 on; 0 for none */
    uint64_t changes; /* entries that came or went so far */
} Memo;

enum { FIRST_ROOM = 16 };

static Py_ssize_t parts_of(PyObject *objects) {
    PyObject *first = PyTuple_GET_ITEM(objects, 0);
    return 1 + (PyTuple_Check(first) ? PyTuple_GET_SIZE(first) : 0);
}

/* Of the objects' identities and of the values; 0 with an exception set where a value has none. */
static int hash_of(PyObject *objects, PyObject *values, uint64_t *hash) {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(objects); n++) {
        h ^= (uintptr_t)PyTuple_GET_ITEM(objects, n) >> 4;
        h *= 0xFF51AFD7ED558CCDull;
        h ^= h >> 32;
    }
    if (PyTuple_GET_SIZE(values)) {
        Py_hash_t its = PyObject_Hash(values);
        if (its == -1) return 0;
        h = (h ^ (uint64_t)its) * 0xC4CEB9FE1A85EC53ull;
        h ^= h >> 33;
    }
    *hash = h;
    return 1;
}

static int same_objects(PyObject *one, PyObject *other) {
    Py_ssize_t size = PyTuple_GET_SIZE(one);
    if (size != PyTuple_GET_SIZE(other)) return 0;
    for (Py_ssize_t n = 0; n < size; n++)
        if (PyTuple_GET_ITEM(one, n) != PyTuple_GET_ITEM(other, n)) return 0;
    return 1;
}

/* The place of an entry, from 1 on; 0 where there is none, -1 with an exception set. */
static Py_ssize_t find(Memo *self, uint64_t hash, PyObject *objects, PyObject *values) {
    for (uint64_t at = hash;; at++) {
        int32_t place = self->count ? self->slot[at & (self->slots - 1)] : 0;
        if (!place) return 0;
        Entry *entry = &self->entry[place - 1];
        if (entry->hash != hash || !same_objects(entry->objects, objects)) continue;
        if (!PyTuple_GET_SIZE(values) && !PyTuple_GET_SIZE(entry->values)) return place;
        /* To compare is to run code of the values: what it asks of this memo may move entries. Then from the start. */
        uint64_t before = self->changes;
        PyObject *its = Py_NewRef(entry->values);
        int same = PyObject_RichCompareBool(its, values, Py_EQ);
        Py_DECREF(its);
        if (same < 0) return -1;
        if (self->changes != before)
            at = hash - 1;
        else if (same)
            return place;
    }
}

static void put(Memo *self, int32_t place) {
    uint64_t at = self->entry[place - 1].hash;
    while (self->slot[at & (self->slots - 1)]) at++;
    self->slot[at & (self->slots - 1)] = place;
}

/* The table anew, for as many entries as there is room for; 0 with an exception set. */
static int make_table(Memo *self, Py_ssize_t room) {
    Py_ssize_t slots = FIRST_ROOM * 2;
    while (slots < 2 * room + 1) slots *= 2;
    int32_t *slot = calloc(slots, sizeof *slot);
    if (!slot) {
        PyErr_NoMemory();
        return 0;
    }
    free(self->slot);
    self->slot = slot;
    self->slots = slots;
    for (Py_ssize_t place = 1; place <= self->count; place++) put(self, (int32_t)place);
    return 1;
}

static int grow(Memo *self) {
    Py_ssize_t room = self->room ? 2 * self->room : FIRST_ROOM;
    Entry *entry = realloc(self->entry, sizeof *entry * room);
    if (!entry) {
        PyErr_NoMemory();
        return 0;
    }
    self->entry = entry;
    if (!make_table(self, room)) return 0;
    self->room = room;
    return 1;
}

static void let_go(Entry *entry, Py_ssize_t count) {
    for (Py_ssize_t n = 0; n < count; n++) {
        Py_DECREF(entry[n].objects);
        Py_DECREF(entry[n].values);
        Py_DECREF(entry[n].result);
    }
    free(entry);
}

/* The older half goes. What goes with it may run code that asks this memo, which is whole again by then. */
static int forget_half(Memo *self) {
    Py_ssize_t gone = (self->count + 1) / 2;
    Entry *old = malloc(sizeof *old * (gone + 1));
    if (!old) {
        PyErr_NoMemory();
        return 0;
    }
    memcpy(old, self->entry, sizeof *old * gone);
    self->count -= gone;
    memmove(self->entry, self->entry + gone, sizeof *old * self->count);
    for (Py_ssize_t n = 0; n < gone; n++) self->parts -= parts_of(old[n].objects);
    self->changes++;
    memset(self->slot, 0, sizeof *self->slot * self->slots);
    for (Py_ssize_t place = 1; place <= self->count; place++) put(self, (int32_t)place);
    let_go(old, gone);
    return 1;
}

static int add(Memo *self, uint64_t hash, PyObject *objects, PyObject *values, PyObject *result) {
    if (self->count == self->room && !grow(self)) return 0;
    self->entry[self->count++] = (Entry){hash, Py_NewRef(objects), Py_NewRef(values), Py_NewRef(result)};
    put(self, (int32_t)self->count);
    self->changes++;
    self->parts += parts_of(objects);
    return self->parts <= self->most_parts || forget_half(self);
}

static PyObject *of(PyObject *object, PyObject *const *args, Py_ssize_t given) {
    Memo *self = (Memo *)object;
    if (given != 3 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_GET_SIZE(args[0])) {
        PyErr_SetString(PyExc_TypeError, "of() takes a tuple of objects, one of values and a function");
        return NULL;
    }
    uint64_t hash;
    if (!hash_of(args[0], args[1], &hash)) return NULL;
    Py_ssize_t place = find(self, hash, args[0], args[1]);
    if (place < 0) return NULL;
    if (place) return Py_NewRef(self->entry[place - 1].result);
    PyObject *result = PyObject_CallNoArgs(args[2]);
    if (!result) return NULL;
    /* Working it out may have asked for it. */
    place = find(self, hash, args[0], args[1]);
    if (place > 0) Py_SETREF(self->entry[place - 1].result, Py_NewRef(result));
    if (place < 0 || (!place && !add(self, hash, args[0], args[1], result))) Py_CLEAR(result);
    return result;
}

static int clear(PyObject *object) {
    Memo *self = (Memo *)object;
    Entry *entry = self->entry;
    Py_ssize_t count = self->count;
    free(self->slot);
    self->entry = NULL;
    self->slot = NULL;
    self->count = self->room = self->parts = self->slots = 0;
    self->changes++;
    let_go(entry, count);
    return 0;
}

static int traverse(PyObject *object, visitproc visit, void *arg) {
    Memo *self = (Memo *)object;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        Py_VISIT(self->entry[n].objects);
        Py_VISIT(self->entry[n].values);
        Py_VISIT(self->entry[n].result);
    }
    return 0;
}

static void dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    clear(object);
    Py_TYPE(object)->tp_free(object);
}

static int init(PyObject *object, PyObject *args, PyObject *named) {
    static char *names[] = {"most_parts", NULL};
    return PyArg_ParseTupleAndKeywords(args, named, "n", names, &((Memo *)object)->most_parts) ? 0 : -1;
}

static Py_ssize_t length(PyObject *object) { return ((Memo *)object)->count; }

static PyMethodDef methods[] = {
    {"of", (PyCFunction)(void (*)(void))of, METH_FASTCALL, "The result for these objects and values."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods sequence = {.sq_length = length};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "am.agent._memo.Memo",
    .tp_basicsize = sizeof(Memo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_init = init,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_as_sequence = &sequence,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_memo", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__memo(void) {
    PyObject *made = PyType_Ready(&type) < 0 ? NULL : PyModule_Create(&module);
    if (made && PyModule_AddObjectRef(made, "Memo", (PyObject *)&type) < 0) Py_CLEAR(made);
    return made;
}
