"""Turns the instructions of a rank into functions, which a step calls one after the other."""

from functools import partial

from ._layers import Recipe
from ._overlap import run_overlapped
from ._plan import halves_of, receive_early

_TIMED = {"FORWARD", "FORWARD_ONLY", "OVERLAP", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"}


class Actions:
    """Makes the functions of a Pipeline. Pipeline is derived from this class; it adds modules and connections.

    _slots   [message slots]: the tensors of a message; while a message is in flight, an object whose wait() waits for
             the message; None: the slot is free
    _held    {(chunk, microbatch): a dps.torch._stage.Held}, in training from the F to the end of the B or W
    _step    inputs, targets and results of the current step
    _times   the times of components in the present pass, of stages of layers() (dps.torch._layers.Times)
    _order   how the actions are ordered and timed (dps.torch._order)

    There is one method _make_OPCODE for each opcode that does something here. Its arguments are an instruction and
    `mode` (True: the step trains; False: only forwards). It returns the function that a step calls for this
    instruction; None if there is nothing to do."""

    def _functions(self, mode, learnt):
        """Returns (actions, functions) of a step, in the order in which they run. It leaves out actions without a
        function.

        mode     True: a training step; False: only forwards
        learnt   whether an earlier step has learnt the shapes of messages; if so, receives are posted early, unless
                 this rank has messages that go through NCCL"""
        actions = self.plan.training if mode else self.plan.evaluation
        made = {}
        for action in actions:
            maker = getattr(self, "_make_" + action.instruction.opcode.lower(), None)
            made[action.index] = self._timed(action, maker(action.instruction, mode)) if maker else None
        actions = [action for action in actions if made[action.index]]
        exchange = self._exchanges[mode]
        if learnt and not exchange.outgoing and not exchange.incoming:
            actions = receive_early(actions)
        return actions, [made[action.index] for action in actions]

    def _timed(self, action, run):
        """A function that runs a pass of a stage of layers() and keeps the times of the components."""
        times, components = self._times, self._components
        is_pass = run is not None and action.instruction.opcode in _TIMED
        if not is_pass or all(len(self._stages[half.chunk].parts) == 1 for half in halves_of(action.instruction)):
            return run

        def timed():
            times.begin()
            run()
            components.append((action.index, times.rows, times.waits))
        return timed

    def _make_forward(self, i, mode):
        stage, slots, held, step = self._stages[i.chunk], self._slots, self._held, self._step
        number, key, x, y = i.number, (i.chunk, i.microbatch), i.x, i.y
        is_first, is_last, split = i.stage == 0, stage.is_last, key in self._split

        def run():
            inputs = step.inputs[number] if is_first else slots[x]
            targets = step.targets.get(number) if is_last else None
            kept, outputs = stage.forward(inputs, step.arguments[number], targets, split and mode)
            if mode:
                held[key] = kept
            elif not is_first:
                slots[x] = None
            self._forwarded(number, y, is_last, kept.loss, outputs)
        return run

    _make_forward_only = _make_forward

    def _make_overlap_forward(self, i, mode):
        """The function of an F&F. It runs the two forwards one after the other."""
        first, second = self._make_forward(i, mode), self._make_forward(i.second, mode)
        key = i.chunk, i.microbatch

        def in_turn():
            first()
            self._middles[key] = self._order.mark()
            second()
        return in_turn

    def _forwarded(self, number, y, is_last, loss, outputs):
        if is_last:
            if loss is not None:
                self._step.losses[number] = loss.detach()
            if self._step.outputs is not None:
                self._step.outputs[number] = tuple(y.detach() for y in outputs)
        else:
            self._slots[y] = outputs

    def _make_backward(self, i, mode):
        stage, slots, held = self._stages[i.chunk], self._slots, self._held
        key, dx, dy, x = (i.chunk, i.microbatch), i.dx, i.dy, i.x

        def run():
            made = stage.backward(held.pop(key), () if dy is None else slots[dy])
            self._free(x, dy)
            if dx is not None:
                slots[dx] = made
        return run

    def _free(self, *slots):
        for slot in slots:
            if slot is not None:
                self._slots[slot] = None

    def _make_backward_input(self, i, mode):
        stage, slots, held = self._stages[i.chunk], self._slots, self._held
        key, dx, dy, x = (i.chunk, i.microbatch), i.dx, i.dy, i.x

        def run():
            made = stage.backward_input(held[key], () if dy is None else slots[dy])
            self._free_input_half(x, dy)
            if dx is not None:
                slots[dx] = made
        return run

    def _free_input_half(self, x, dy):
        """Frees the slots x (input of the stage) and dy (gradients of its outputs) after an I: the graph keeps those of
        their tensors that W uses. Sets .grad of the inputs to None, because these gradients go to another stage, and
        the graph must not keep them."""
        if x is not None:
            for tensor in self._slots[x]:
                tensor.grad = None
        self._free(x, dy)

    def _make_backward_weight(self, i, mode):
        stage, held, key = self._stages[i.chunk], self._held, (i.chunk, i.microbatch)
        return lambda: stage.backward_weight(held.pop(key))

    def _make_overlap(self, i, mode):
        forward = self._make_forward(i, mode)
        if i.second is None:
            return forward
        maker = self._make_backward if i.second.opcode == "BACKWARD" else self._make_backward_input
        backward, key = maker(i.second, mode), (i.chunk, i.microbatch)
        overlapped = self._recipes.get(key) or self._overlapped_of(i)

        def in_turn():
            forward()
            self._middles[key] = self._order.mark()
            backward()
        return self._overlap(i, overlapped) if overlapped else in_turn

    def _overlapped_of(self, i):
        """The user's function that runs both halves of the F&B `i`. None: the halves run one after the other, or `i` is
        no F&B."""
        if i.opcode != "OVERLAP" or i.second is None:
            return None
        first, second = self._wrapped[i.chunk].inside, self._wrapped[i.second.chunk].inside
        if type(first) is type(second) and hasattr(type(first), "overlapped_forward_backward"):
            return type(first).overlapped_forward_backward
        return self.overlapped

    def _overlap(self, i, overlapped):
        """overlapped: a Recipe, or the user's function."""
        is_recipe = isinstance(overlapped, Recipe)
        run_both = partial(overlapped.run, self._lane) if is_recipe else partial(run_overlapped, overlapped)
        first, second = self._stages[i.chunk], self._stages[i.second.chunk]
        slots, held, step = self._slots, self._held, self._step
        number, key, other = i.number, (i.chunk, i.microbatch), (i.second.chunk, i.second.microbatch)
        is_input_half, split, dy = i.second.opcode == "BACKWARD_INPUT", key in self._split, i.second.dy

        def run():
            inputs = step.inputs[number] if i.stage == 0 else slots[i.x]
            targets = step.targets.get(number) if first.is_last else None
            kept, outputs, dx = run_both(first, second, (inputs, step.arguments[number], targets, split),
                                         (held[other], () if dy is None else slots[dy], is_input_half))
            held[key] = kept
            if not is_input_half:
                del held[other]
            self._forwarded(number, i.y, first.is_last, kept.loss, outputs)
            if is_input_half:
                self._free_input_half(i.second.x, dy)
            else:
                self._free(i.second.x, dy)
            if i.second.dx is not None:
                slots[i.second.dx] = dx
        return run

    def _message_number(self, i, forward):
        """The number of a message. Between stages s and s + 1 each microbatch has two messages, one in each
        direction."""
        return 2 * ((i.stage if forward else i.stage - 1) * self.program.microbatches + i.number) + forward

    def _make_send_forward(self, i, mode):
        number = self._message_number(i, True)
        return self._sending(i, mode, number, number, f"stage {i.stage}, microbatch {i.number}")

    def _make_send_backward(self, i, mode):
        return self._sending(i, mode, self._message_number(i, False),
                             self._message_number(i._replace(stage=i.stage - 1), True))

    def _sending(self, i, mode, number, activation, what=""):
        slots, slot = self._slots, i.message
        send = self._exchanges[mode].sender(self._process_of[i.peer], number, activation, what)

        def run():
            slots[slot] = send(slots[slot])
        return run

    def _make_receive_forward(self, i, mode):
        number = self._message_number(i._replace(stage=i.stage - 1), True)
        return self._receiving(i, mode, number, number)

    def _make_receive_backward(self, i, mode):
        return self._receiving(i, mode, self._message_number(i._replace(stage=i.stage + 1), False),
                               self._message_number(i, True))

    def _receiving(self, i, mode, number, activation):
        slots, slot = self._slots, i.message
        receive = self._exchanges[mode].receiver(self._process_of[i.peer], number, activation)

        def run():
            slots[slot] = receive()
        return run

    def _make_wait(self, i, mode):
        slots, slot = self._slots, i.message

        def run():
            slots[slot] = slots[slot].wait()
        return run

    def _make_reduce(self, i, mode):
        total = self._sums[i.chunk]
        return total.post if total.is_needed else None

    def _make_wait_reduce(self, i, mode):
        total, module, chunk = self._sums[i.chunk], self.modules[i.chunk], i.chunk

        def run():
            total.wait()
            if self.gradient_ready:
                self.gradient_ready(chunk, module)
        return run
