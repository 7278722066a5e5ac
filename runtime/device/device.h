#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

/* placeholder of the contract: the device's owner completes this file */
#include "runtime/base/status.h"
#include <stddef.h>
typedef struct Device Device;
#endif
