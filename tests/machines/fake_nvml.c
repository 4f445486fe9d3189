/* A libnvidia-ml.so.1 that describes the machine in the text file named by TUI_TRAIN_TEST_MACHINE; see README.md here.
 *
 * Types and numbers are those of NVIDIA's nvml.h, as nvidia-ml-py knows them. A file it does not understand ends the
 * process with a message, so that a test never runs on another machine than its author meant. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
static const struct { const char *name; int code; } ERRORS[] = {
    {"UNINITIALIZED", 1}, {"INVALID_ARGUMENT", 2}, {"NOT_SUPPORTED", 3}, {"NO_PERMISSION", 4}, {"NOT_FOUND", 6},
    {"INSUFFICIENT_SIZE", 7}, {"INSUFFICIENT_POWER", 8}, {"DRIVER_NOT_LOADED", 9}, {"TIMEOUT", 10}, {"IRQ_ISSUE", 11},
    {"LIBRARY_NOT_FOUND", 12}, {"FUNCTION_NOT_FOUND", 13}, {"CORRUPTED_INFOROM", 14}, {"GPU_IS_LOST", 15},
    {"RESET_REQUIRED", 16}, {"OPERATING_SYSTEM", 17}, {"LIB_RM_VERSION_MISMATCH", 18}, {"IN_USE", 19}, {"MEMORY", 20},
    {"NO_DATA", 21}, {"ARGUMENT_VERSION_MISMATCH", 25}, {"UNKNOWN", 999}, {NULL, 0}};
static const char *const KEYS[] = {
    " load init driver cuda count ",
    " handle uuid name bus compute memory memory_v2 used reserved cores display mode mig process "
    "clock ecc ecc_errors repair throttle pcie nvlinks peers use temperature temperature_old power power_limit energy ",
    " handle uuid name memory memory_v2 used reserved multiprocessors process "};

typedef struct { char *key, *value; } Line;
typedef struct Section { int kind, count; struct Section *card; Line lines[64]; } Section; /* 0 host, 1 card, 2 instance */
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } ProcessInfo;

static Section sections[256];
static int used_sections;
static struct stat seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void refuse(const char *what, const char *detail) {
    fprintf(stderr, "fake NVML: %s: %s\n", what, detail ? detail : "");
    _exit(70);
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    for (char *end = text + strlen(text); end > text && isspace((unsigned char)end[-1]);) *--end = 0;
    return text;
}

/* `\xNN` is a byte, `\\` a backslash. */
static void unescape(char *text) {
    char *to = text;
    for (char *from = text; *from; from++) {
        unsigned byte;
        if (from[0] == '\\' && from[1] == 'x' && sscanf(from + 2, "%2x", &byte) == 1) { *to++ = (char)byte; from += 3; }
        else if (from[0] == '\\' && from[1] == '\\') { *to++ = '\\'; from++; }
        else *to++ = *from;
    }
    *to = 0;
}

static void read_machine(void) {
    const char *path = getenv("TUI_TRAIN_TEST_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) refuse("cannot read the machine file in TUI_TRAIN_TEST_MACHINE", path);
    fstat(fileno(file), &seen);
    used_sections = 0;
    memset(sections, 0, sizeof sections);
    char text[4096], padded[80];
    Section *now = &sections[used_sections++], *card = NULL;
    while (fgets(text, sizeof text, file)) {
        char *line = trim(text);
        if (!*line || *line == '#') continue;
        if (*line == '[') {
            if (used_sections == 256) refuse("too many sections", path);
            now = &sections[used_sections++];
            if (!strcmp(line, "[card]")) { now->kind = 1; card = now; }
            else if (!strcmp(line, "[instance]") && card) { now->kind = 2; now->card = card; }
            else refuse("unknown section", line);
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals) refuse("neither `key = value` nor `[section]`", line);
        *equals = 0;
        char *key = trim(line), *value = trim(equals + 1);
        snprintf(padded, sizeof padded, " %.70s ", key);
        if (!strstr(KEYS[now->kind], padded)) refuse("unknown key", key);
        if (now->count == 64) refuse("too many lines in one section", key);
        now->lines[now->count++] = (Line){strdup(key), strdup(value)};
    }
    fclose(file);
}

/* Set *value to what `section` says, after the delay it asks for; or return the error it asks for. */
static int interpret(char *text, char **value) {
    if (*text == '@') {
        usleep((unsigned)(strtod(text + 1, &text) * 1e6));
        text = trim(text);
    }
    if (!strcmp(text, "!HANG")) for (;;) pause();
    if (*text == '!') {
        for (int i = 0; ERRORS[i].name; i++) if (!strcmp(text + 1, ERRORS[i].name)) return ERRORS[i].code;
        refuse("unknown error", text);
    }
    *value = text;
    return SUCCESS;
}

/* Return a copy of the value of the line of `section` with this key that follows `nth` others; NULL where there is none.
 * A file that was renamed to the old one's place is read anew: handles stay good, for a section keeps its position. */
static char *line_of(Section *section, const char *key, int nth) {
    struct stat now;
    char *found = NULL;
    pthread_mutex_lock(&lock);
    const char *path = getenv("TUI_TRAIN_TEST_MACHINE");
    if (path && !stat(path, &now) && (now.st_ino != seen.st_ino || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec))
        read_machine();
    for (int i = 0; i < section->count && !found; i++)
        if (!strcmp(section->lines[i].key, key) && nth-- == 0) found = strdup(section->lines[i].value);
    pthread_mutex_unlock(&lock);
    return found;
}

static int ask(Section *section, const char *key, char **value) {
    char *text = line_of(section, key, 0);
    return text ? interpret(text, value) : NOT_SUPPORTED;
}

static int number(Section *section, const char *key, unsigned long long *result) {
    char *text, *unit;
    int code = ask(section, key, &text);
    if (code) return code;
    *result = strtoull(text, &unit, 0);
    unit = trim(unit);
    if (!strcmp(unit, "MiB")) *result <<= 20;
    else if (!strcmp(unit, "GiB")) *result <<= 30;
    else if (*unit) refuse("a number with a strange unit", text);
    return SUCCESS;
}

static int string(Section *section, const char *key, char *buffer, unsigned length) {
    char *text, copy[4096];
    int code = ask(section, key, &text);
    if (code) return code;
    strcpy(copy, text);
    unescape(copy);
    if (strlen(copy) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(buffer, copy);
    return SUCCESS;
}

static Section *numbered(int kind, Section *card, unsigned index) {
    for (int i = 0; i < used_sections; i++)
        if (sections[i].kind == kind && sections[i].card == card && index-- == 0) return &sections[i];
    return NULL;
}

static int open_section(Section *section, Section **handle) {
    char *text;
    if (!section) return NOT_FOUND;
    int code = ask(section, "handle", &text);
    *handle = section;
    return code == NOT_SUPPORTED ? SUCCESS : code;
}

__attribute__((constructor)) static void load(void) {
    char *text;
    if (!getenv("TUI_TRAIN_TEST_MACHINE")) return;
    read_machine();
    ask(&sections[0], "load", &text);
}

int nvmlInitWithFlags(unsigned flags) {
    char *text;
    (void)flags;
    if (!used_sections) read_machine();
    int code = ask(&sections[0], "init", &text);
    return code == NOT_SUPPORTED ? SUCCESS : code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    for (int i = 0; ERRORS[i].name; i++) if (ERRORS[i].code == code) return ERRORS[i].name;
    return "unknown";
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned length) { return string(&sections[0], "driver", buffer, length); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    char *text;
    int major = 0, minor = 0, code = ask(&sections[0], "cuda", &text);
    if (!code && sscanf(text, "%d.%d", &major, &minor) == 2) *version = major * 1000 + minor * 10;
    return code;
}
int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long told;
    int code = number(&sections[0], "count", &told);
    if (code == NOT_SUPPORTED) for (code = SUCCESS, told = 0; numbered(1, NULL, (unsigned)told);) told++;
    *count = (unsigned)told;
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Section **handle) {
    return open_section(numbered(1, NULL, index), handle);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Section **handle) {
    char *text;
    Section *card;
    for (unsigned i = 0; (card = numbered(1, NULL, i)); i++)
        if (!ask(card, "uuid", &text) && !strcmp(text, uuid)) return open_section(card, handle);
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(Section *device, unsigned *index) {
    for (*index = 0; numbered(1, NULL, *index); ++*index)
        if (numbered(1, NULL, *index) == device) return SUCCESS;
    return NOT_FOUND;
}
int nvmlDeviceGetTotalEnergyConsumption(Section *device, unsigned long long *energy) {
    return number(device, "energy", energy);
}
int nvmlDeviceGetName(Section *device, char *buffer, unsigned length) { return string(device, "name", buffer, length); }
int nvmlDeviceGetUUID(Section *device, char *buffer, unsigned length) { return string(device, "uuid", buffer, length); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } PciInfo;
int nvmlDeviceGetPciInfo_v3(Section *device, PciInfo *info) {
    memset(info, 0, sizeof *info);
    return string(device, "bus", info->address, sizeof info->address);
}

static int memory(Section *device, unsigned long long *total, unsigned long long *reserved, unsigned long long *used) {
    int code = number(device, "memory", total);
    *used = *reserved = 0;
    if (!code && (code = number(device, "used", used)) == NOT_SUPPORTED) code = SUCCESS;
    if (!code && (code = number(device, "reserved", reserved)) == NOT_SUPPORTED) code = SUCCESS;
    return code;
}
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Section *device, Memory *info) {
    unsigned long long reserved;
    int code = memory(device, &info->total, &reserved, &info->used);
    info->used += reserved;
    info->free = info->total - info->used;
    return code;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(Section *device, MemoryV2 *info) {
    char *text;
    int code = ask(device, "memory_v2", &text);
    if (code && code != NOT_SUPPORTED) return code;
    code = memory(device, &info->total, &info->reserved, &info->used);
    info->free = info->total - info->used - info->reserved;
    return code;
}

int nvmlDeviceGetCudaComputeCapability(Section *device, int *major, int *minor) {
    char *text;
    int code = ask(device, "compute", &text);
    if (!code && sscanf(text, "%d.%d", major, minor) != 2) refuse("`compute` is not like 8.6", text);
    return code;
}
int nvmlDeviceGetNumGpuCores(Section *device, unsigned *cores) {
    unsigned long long told = 0;
    int code = number(device, "cores", &told);
    *cores = (unsigned)told;
    return code;
}
int nvmlDeviceGetDisplayActive(Section *device, unsigned *active) {
    char *text;
    int code = ask(device, "display", &text);
    if (!code) *active = !strcmp(text, "on");
    return code;
}
int nvmlDeviceGetComputeMode(Section *device, unsigned *mode) {
    char *text;
    int code = ask(device, "mode", &text);
    if (!code) *mode = !strcmp(text, "prohibited") ? 2 : !strcmp(text, "exclusive") ? 3 : 0;
    return code;
}

int nvmlDeviceGetMigMode(Section *device, unsigned *current, unsigned *pending) {
    char *text;
    if (ask(device, "mig", &text)) return NOT_SUPPORTED;
    *current = *pending = 1;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Section *device, unsigned *count) {
    for (*count = 0; numbered(2, device, *count);) ++*count;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Section *device, unsigned index, Section **handle) {
    return open_section(numbered(2, device, index), handle);
}
typedef struct { unsigned multiprocessors, others[7]; unsigned long long memory; } Attributes;
int nvmlDeviceGetAttributes_v2(Section *device, Attributes *attributes) {
    unsigned long long told = 0;
    int code = device->kind == 2 ? number(device, "multiprocessors", &told) : NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = (unsigned)told;
    return code;
}

/* `process = PID compute|graphics|both AMOUNT UNIT NAME ...`; PID may be `self` or `parent`, the amount `?`. */
static char *parse_process(char *text, ProcessInfo *info, char *kind) {
    char pid[32], amount[32];
    int used = 0;
    memset(info, 0, sizeof *info);
    if (sscanf(text, "%31s %15s %31s%n", pid, kind, amount, &used) != 3) refuse("a process is not like the README", text);
    info->pid = !strcmp(pid, "self") ? (unsigned)getpid() : !strcmp(pid, "parent") ? (unsigned)getppid()
                                                                                 : (unsigned)strtoul(pid, NULL, 10);
    text = trim(text + used);
    info->memory = ~0ULL;
    if (strcmp(amount, "?")) {
        if (strncmp(text, "MiB", 3)) refuse("a process' memory is not in MiB", text);
        info->memory = strtoull(amount, NULL, 10) << 20;
        text = trim(text + 3);
    }
    return text;
}
static int processes(Section *device, const char *wanted, unsigned *count, ProcessInfo *infos) {
    unsigned room = infos ? *count : 0, found = 0;
    char kind[16], *text, *line;
    ProcessInfo info;
    for (int i = 0; (line = line_of(device, "process", i)); i++) {
        int code = interpret(line, &text);
        if (code) return code;
        parse_process(text, &info, kind);
        if (strcmp(kind, wanted) && strcmp(kind, "both")) continue;
        if (found < room) infos[found] = info;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Section *device, unsigned *count, ProcessInfo *infos) {
    return processes(device, "compute", count, infos);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Section *device, unsigned *count, ProcessInfo *infos) {
    return processes(device, "graphics", count, infos);
}
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char kind[16], *text, *line;
    ProcessInfo info;
    for (int s = 0; s < used_sections; s++)
        for (int i = 0; (line = line_of(&sections[s], "process", i)); i++) {
            if (interpret(line, &text)) continue;
            text = parse_process(text, &info, kind);
            if (info.pid != pid) continue;
            snprintf(name, length, "%s", text);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetMaxClockInfo(Section *device, int type, unsigned *clock) {
    unsigned long long told = 0;
    int code = type == 1 ? number(device, "clock", &told) : NOT_SUPPORTED;
    *clock = (unsigned)told;
    return code;
}
int nvmlDeviceGetEccMode(Section *device, unsigned *current, unsigned *pending) {
    char *text;
    int code = ask(device, "ecc", &text);
    if (!code) *current = *pending = !strcmp(text, "on");
    return code;
}
/* Only what ECC could not correct, since the driver was loaded. */
int nvmlDeviceGetTotalEccErrors(Section *device, int kind, int since, unsigned long long *count) {
    return kind == 1 && since == 0 ? number(device, "ecc_errors", count) : INVALID_ARGUMENT;
}
/* `repair` is none, pending, failed or retired; the last one is pending on a card before Ampere. */
int nvmlDeviceGetRemappedRows(Section *device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed) {
    char *text;
    int code = ask(device, "repair", &text);
    *correctable = *uncorrectable = *pending = *failed = 0;
    if (code) return code;
    if (!strcmp(text, "retired")) return NOT_SUPPORTED;
    *pending = !strcmp(text, "pending");
    *failed = !strcmp(text, "failed");
    return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Section *device, unsigned *pending) {
    char *text;
    int code = ask(device, "repair", &text);
    if (code || strcmp(text, "retired")) return code ? code : NOT_SUPPORTED;
    *pending = 1;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Section *device, unsigned long long *reasons) {
    return number(device, "throttle", reasons);
}
typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Section *device, Utilization *rates) {
    unsigned long long told = 0;
    int code = number(device, "use", &told);
    *rates = (Utilization){(unsigned)told, 0};
    return code;
}
typedef struct { unsigned version; int sensor, temperature; } TemperatureV1;
int nvmlDeviceGetTemperatureV(Section *device, TemperatureV1 *told) {
    unsigned long long degrees = 0;
    int code = told->version != 0x100000C ? 25 : told->sensor ? INVALID_ARGUMENT : number(device, "temperature", &degrees);
    told->temperature = (int)degrees;
    return code;
}
int nvmlDeviceGetTemperature(Section *device, int sensor, unsigned *degrees) {
    char *text;
    TemperatureV1 told = {0x100000C, sensor, 0};
    int code = ask(device, "temperature_old", &text);
    if (code && code != NOT_SUPPORTED) return code;
    code = nvmlDeviceGetTemperatureV(device, &told);
    *degrees = (unsigned)told.temperature;
    return code;
}
int nvmlDeviceGetPowerUsage(Section *device, unsigned *milliwatts) {
    unsigned long long told = 0;
    int code = number(device, "power", &told);
    *milliwatts = (unsigned)told * 1000;
    return code;
}
/* `power_limit = WATTS of WATTS`: in force, and by default. */
static int power_limit(Section *device, int which, unsigned *milliwatts) {
    char *text;
    unsigned told[2];
    int code = ask(device, "power_limit", &text);
    if (code) return code;
    if (sscanf(text, "%u of %u", told, told + 1) != 2) refuse("`power_limit` is not like 250 of 350", text);
    *milliwatts = told[which] * 1000;
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(Section *device, unsigned *result) { return power_limit(device, 0, result); }
int nvmlDeviceGetPowerManagementDefaultLimit(Section *device, unsigned *result) {
    return power_limit(device, 1, result);
}
/* `pcie = GENERATION xWIDTH of GENERATION xWIDTH`: now and at most. */
static int pcie(Section *device, int which, unsigned *result) {
    char *text;
    unsigned told[4];
    int code = ask(device, "pcie", &text);
    if (code) return code;
    if (sscanf(text, "%u x%u of %u x%u", told, told + 1, told + 2, told + 3) != 4) refuse("`pcie` is not like 1 x8 of 4 x16", text);
    *result = told[which];
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Section *device, unsigned *result) { return pcie(device, 0, result); }
int nvmlDeviceGetCurrPcieLinkWidth(Section *device, unsigned *result) { return pcie(device, 1, result); }
int nvmlDeviceGetMaxPcieLinkGeneration(Section *device, unsigned *result) { return pcie(device, 2, result); }
int nvmlDeviceGetMaxPcieLinkWidth(Section *device, unsigned *result) { return pcie(device, 3, result); }
int nvmlDeviceGetNvLinkState(Section *device, unsigned link, unsigned *active) {
    unsigned long long told = 0;
    int code = number(device, "nvlinks", &told);
    if (!code && link >= told) code = INVALID_ARGUMENT;
    *active = 1;
    return code;
}
int nvmlDeviceGetP2PStatus(Section *device, Section *other, int kind, unsigned *status) {
    char *text, *end;
    int code = ask(device, "peers", &text);
    (void)kind;
    *status = 1;
    while (!code && *text) {
        unsigned long index = strtoul(text, &end, 10);
        if (end == text) refuse("`peers` is not a list of numbers", text);
        if (numbered(1, NULL, (unsigned)index) == other) *status = 0;
        text = trim(end);
    }
    return code;
}
