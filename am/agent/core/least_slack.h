/* Minimum bin slack: fills gangs one after the other up to a target end, with little time left over. */
#ifndef THEMIS_AGENT_LEAST_SLACK_H
#define THEMIS_AGENT_LEAST_SLACK_H

#include "packer.h"

/* Allocates what filling needs. Returns 0 if out of memory. */
int make_room_to_fill(Packer *packer);

/* Puts jobs on gangs up to an end, by one of `FILLING_WAYS` ways. Returns how many jobs are left over (gang -1). */
int fill_by(Packer *packer, double end_s, int way);

#endif
