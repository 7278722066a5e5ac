#pragma once

#define PROJECT_VERSION "0.1.0"
