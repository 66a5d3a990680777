"""Where GPUs are: free capacity, best fit of a gang, and the levels that a placement spans. Pure.

A *slot* is a group of GPUs of one machine that share the fastest link. Slots make a *machine*, machines a *rack*, racks
the *cluster*. A *gang* is the GPUs of one job. Its *level* is the tightest of these four that holds all of its GPUs. A
gang comes in *units*: the GPUs of one task, which must be on one machine. All GPUs of a gang have one device type.

Which place a gang gets by `best_fit`, the rule of policies, of leftovers, and of an app's jobs on its own GPUs:

1. Speed: of all device types and levels, those where the gang's throughput g * speed(type) / S(level) is highest. A
   type where the job's speed is 0 is never used (`themis.speeds`). An extension stays on the type of the gang. Ties go
   to the type that is faster for the job, then to the smaller name, then to the tighter level.
2. Best fit: of all holders (slots, machines, racks) with enough free GPUs, the one with the fewest free. Free GPUs
   count for slots and machines, free units for racks. Ties between slots go to the machine with fewer free GPUs.
3. Remaining ties go to the smaller id: machine, then slot; or rack.
4. A gang over several machines takes the largest machines whole, then for the rest the machine that fits best
   (`best_fit.spread`). So it uses few machines, and few racks.
5. Of a machine where no slot holds all of its GPUs, a gang takes the smallest slots first (`slots_after`), so that the
   largest stays whole if possible.

Example: free slots m0: (4), m1: (2, 2), m2: (3). A gang of two goes to slot 0 of m1, the tightest slot. A gang of four
goes to the slot of m0 and not over both slots of m1: a slot is never slower. A gang of five needs two machines: m0 is
taken whole, and the fifth GPU comes from m2. Example with types: three k80 and one v100 are free. A job of one to four
GPUs with speeds 1 and 2 takes the three k80 (3 > 2), a job with speeds 1 and 4 the v100 (4 > 3).

Gangs won in an auction are placed by the same rule. A gang may span at most the level of its bid, and S grows from
level to level. `rm_plugin.solvers.realise` calls `best_fit`, and `rm_plugin/solvers/exact/core/best_fit.c` is the same
in C, for the thousands of choices that the solver `exact` tries. A test compares the two. If best fit finds no
place for some gang, but the choice fits, the solvers place it otherwise: gangs in racks take the GPUs that others need
least (*sparing*, in the C code), or gangs stay within the counts that a search found (`realise` with a layout).

Three policies choose by rules of their own:

- `rm_plugin.policies.allox` chooses a machine for each job by a matching, or the shortest time.
- `rm_plugin.policies.oef_gangs`: with `placer: plain`, a job takes the first free GPUs by machine id.
- `rm_plugin.policies.oef.placement` places jobs on bare hosts, in the evaluation of OEF only.

Modules: `free_capacity` (how many GPUs are free in each slot), `best_fit` (where a gang goes), `gang_capacity` (how
many gangs of a size fit, without placing them), `gpu_choice` (which GPUs of a machine, by index), `enumeration` (all
distinct placements, for exhaustive search).
"""
