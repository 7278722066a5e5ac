#ifndef PROGRAM_SLOTS_H
#define PROGRAM_SLOTS_H

/* Slot allocation: which slot holds what, and when. It is register allocation for the instructions of a rank.
   opcodes.def says what each instruction does to its slots. */

#include "runtime/program/program.h"

/* Gives `count` instructions of one rank their slots, and adds a WAIT for each message. The instructions come in
   order, with END, without slots and without WAIT. The rank has its chunks; the program has its stages and pipes,
   and whether it is asynchronous. Fills in the rank's instructions, slots and peak_activations.

   The WAIT of a receive comes right before the pass that needs the message. The WAIT of a send comes when its slot
   is needed again, but only after two more passes, so that a rank seldom waits for a slow receiver; or at the end.

   Counts above PROGRAM_SLOTS_MAX do not fit into a program; the caller checks them. False: out of memory. */
bool slots_assign(const Program *program, RankProgram *rank, const Instruction *instructions, uint32_t count,
                  Arena *arena);

/* The class of which a rank has more slots than a program can name; SLOT_CLASSES: none. */
SlotClass slots_exceeded(const RankProgram *rank);

#endif
