#ifndef THEMIS_AGENT_LEAST_SLACK_H
#define THEMIS_AGENT_LEAST_SLACK_H

#include "packer.h"

int fill_by(Packer *packer, double end_s, double patience, double lean);

#endif
