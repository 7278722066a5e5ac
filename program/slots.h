#pragma once

/* Slot allocation: which slot holds which content, from when to when. It is register allocation for the instructions of
   a rank. opcodes.def says what each instruction does to its slots. */

#include "program/program.h"

/* Gives `count` instructions of one rank their slots, and adds a WAIT for each message. `instructions` are in order and
   end with END; they have no slots, and there are no WAITs. Of `rank` the chunks must be filled in; of `program` the
   stages, the pipes, and whether it is forward-only or asynchronous. Fills in the rank's instructions, slots and
   peak_activations.

   The WAIT of a receive comes right before the pass that needs the message. The WAIT of the oldest send comes when a
   message slot is needed, none is free, and two passes have run since the send; if fewer have run, or every send has
   its WAIT, the rank gets one slot more. So a rank seldom waits for a slow receiver. The WAITs of the remaining sends
   come after the last pass, message, U or REDUCE.

   Counts above PROGRAM_SLOTS_MAX do not fit into a program; the caller checks them. */
void slots_assign(const Program *program, RankProgram *rank, const Instruction *instructions, uint32_t count,
                  Arena *arena);

/* A class of which the rank has more than PROGRAM_SLOTS_MAX slots; SLOT_CLASSES: there is none. */
SlotClass slots_exceeded(const RankProgram *rank);
