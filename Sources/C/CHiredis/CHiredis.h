// hiredis 0.14: the reply reader and the command writer; imported by Redis only.
#pragma once
#include <hiredis/hiredis.h>
#include <hiredis/read.h>
