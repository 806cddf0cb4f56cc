// librdkafka 2.0.2 with its mock cluster; imported by Kafka only.
#pragma once
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
