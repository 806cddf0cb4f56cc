#include "CRDKafkaShims.h"
