/* A timeline, as dpc writes it. For each rank: its passes in order, each with a letter in `kinds` and a number in
   every list. `pair` is 1 for the first half of an F&B, 2 for the second, else 0. `from` and `at` are the rank and the
   number of the pass that this pass waits for, -1: none; `ready` is the time at which the result of that pass arrives.
   */

const WORDS = {
  F: "forward", B: "backward", I: "backward for input", W: "backward for weights", U: "update of weights",
};

function number(value) { return String(+value.toPrecision(6)); }
function counted(count, noun, ending) { return `${count} ${noun}${count === 1 ? "" : ending}`; }

/* ---- reading ---- */

function parse(text) {
  const page = text.match(/<script type="application\/json" id="timeline">([\s\S]*?)<\/script>/);
  const data = JSON.parse(page ? page[1] : text);
  if (data.traceEvents) return fromTrace(data);
  if (!data.rank) throw new Error("neither a page of dpc --emit=html nor a trace");
  return data;
}

/* Reads the last step of a trace of dprun --trace or dpc --emit=trace. The first timeline says which chunk of a rank
   holds a stage. */
function fromTrace(trace) {
  const like = panels[0].data;
  const events = trace.traceEvents.filter(e => e.ph === "X" && e.cat === "compute");
  const step = Math.max(...events.map(e => e.args.step));
  const ranks = [], origin = Math.min(...events.filter(e => e.args.step === step).map(e => e.ts));
  for (const e of events.filter(e => e.args.step === step)) {
    const rank = ranks[e.pid] ||= { kinds: "", microbatch: [], chunk: [], start: [], end: [], line: [], pair: [] };
    const halves = e.args.pass.split("&"), start = (e.ts - origin) / 1000, end = start + e.dur / 1000;
    halves.forEach((name, half) => {
      const [, pipe, stage, kind, microbatch] = name.match(/^(?:p(\d+):)?(\d+)([FBIWU])(\d+)$/);
      const chunk = like.chunks[e.pid].findIndex(chunk => chunk[0] === +(pipe || 0) && chunk[1] === +stage);
      if (chunk < 0) throw new Error(`rank ${e.pid} runs ${name} there, and stage ${stage} is on another rank here`);
      const middle = (start + end) / 2;
      rank.kinds += kind;
      rank.chunk.push(chunk);
      rank.microbatch.push(+microbatch);
      rank.start.push(halves.length === 2 && half ? middle : start);
      rank.end.push(halves.length === 2 && !half ? middle : end);
      rank.line.push(e.args.line);
      rank.pair.push(halves.length === 2 ? half + 1 : 0);
    });
  }
  connect(ranks, like.chunks);
  const makespan = Math.max(...ranks.map(rank => rank.end[rank.end.length - 1]));
  const cost = Math.max(...ranks.map(rank => rank.end[rank.end.length - 1] - rank.start[0]));
  const busy = rank => rank.end.reduce((all, end, i) => all + end - rank.start[i], 0);
  const work = ranks.reduce((sum, rank) => sum + busy(rank), 0) / ranks.length;
  return { ...like, schedule: "trace", unit: "ms", makespan, bound: 0, bubble: (cost - work) / cost, rank: ranks, critical: [] };
}

/* Finds what each pass waits for, because a trace does not say it. An F waits for the F of the stage before, a B or I
   for the B or I of the stage after. */
function connect(ranks, chunks) {
  const made = new Map(), name = (r, i, beside) => {
    const rank = ranks[r], [pipe, stage] = chunks[r][rank.chunk[i]], forward = rank.kinds[i] === "F";
    return [pipe, forward ? stage - beside : stage + beside, forward, rank.microbatch[i]].join();
  };
  const each = act => ranks.forEach((rank, r) =>
    [...rank.kinds].forEach((kind, i) => act(rank, r, i, "FBI".includes(kind))));
  each((rank, r, i, makes) => { if (makes) made.set(name(r, i, 0), [r, i]); });
  ranks.forEach(rank => { rank.from = []; rank.at = []; });
  each((rank, r, i, needs) => [rank.from[i], rank.at[i]] = needs && made.get(name(r, i, 1)) || [-1, -1]);
}

/* Adds to a timeline the values that its drawing needs. */
function prepare(data) {
  data.peak = data.most = 0;       // activations, and the largest number in a cell
  data.shortest = data.makespan;   // time of the shortest pass
  data.trains = data.rank.some(rank => /[BI]/.test(rank.kinds));   // without backwards, no rank keeps activations
  data.rank.forEach(rank => {
    rank.ready ||= rank.from.map((from, i) => from < 0 ? -1 : endOf(data.rank[from], rank.at[i]));
    rank.critical = new Uint8Array(rank.kinds.length);
    const changes = [];
    for (let i = 0; i < rank.kinds.length; i++) {
      if (rank.kinds[i] !== "U" && rank.end[i] > rank.start[i])
        data.shortest = Math.min(data.shortest, rank.end[i] - rank.start[i]);
      data.most = Math.max(data.most, rank.microbatch[i]);
      if (rank.kinds[i] === "F" && data.trains) changes.push([startOf(rank, i), 1]);
      if (rank.kinds[i] === "B" || rank.kinds[i] === "W") changes.push([endOf(rank, i), -1]);
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let held = 0;
    rank.peak = 0;
    rank.held = [];         // [time, activations held from then on]
    for (const [time, change] of changes) {
      held += change;
      rank.peak = Math.max(rank.peak, held);
      if (rank.held.length && rank.held[rank.held.length - 1][0] === time) rank.held.pop();
      rank.held.push([time, held]);
    }
    data.peak = Math.max(data.peak, rank.peak);
  });
  for (const [r, i] of data.critical) {
    const [first, last] = wholeOf(data.rank[r], i);
    data.rank[r].critical[first] = data.rank[r].critical[last] = 1;
  }
  return data;
}

/* The numbers of the first and second half of an F&B; for a single pass, its number twice. Both halves run from the
   start of the first to the end of the second, although they are drawn one after the other. */
function wholeOf(rank, i) {
  return [rank.pair[i] === 2 ? i - 1 : i, rank.pair[i] === 1 ? i + 1 : i];
}
function startOf(rank, i) { return rank.start[wholeOf(rank, i)[0]]; }
function endOf(rank, i) { return rank.end[wholeOf(rank, i)[1]]; }

/* The first pass of a rank that ends after a time. */
function firstEndingAfter(rank, time) {
  let low = 0, high = rank.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rank.end[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

/* The idle time of a rank before its pass i, or after its last pass if there is no pass i; null: there is none. */
function idleBefore(data, r, i) {
  const rank = data.rank[r], from = i > 0 ? endOf(rank, i - 1) : 0;
  const to = i < rank.kinds.length ? startOf(rank, i) : data.makespan;
  return rank.pair[i] !== 2 && to - from > 1e-9 * data.makespan ? { from, to } : null;
}

/* The last input for which pass i, or its F&B, waits: `part` needs it, `made` is the [rank, pass] that computes it,
   and it arrives at `ready`; null: there is no input. */
function waitOf(data, r, i) {
  const rank = data.rank[r];
  let wait = null;
  for (let part = wholeOf(rank, i)[0]; part <= wholeOf(rank, i)[1]; part++)
    if (rank.from[part] >= 0 && (!wait || rank.ready[part] > wait.ready))
      wait = { part, made: [rank.from[part], rank.at[part]], ready: rank.ready[part] };
  return wait;
}

function nameOf(data, r, i) {
  const rank = data.rank[r], [pipe, stage] = data.chunks[r][rank.chunk[i]];
  return `${data.pipes.length > 1 ? `p${pipe}:` : ""}${stage}${rank.kinds[i]}${rank.microbatch[i]}`;
}

function needOf(data, r, [from, at]) {
  return nameOf(data, from, at) + (from === r ? "" : ` of rank ${from}`);
}

/* The text about a pass: a name and lines. */
function wordsOfPass(data, r, i) {
  const rank = data.rank[r], [pipe, stage] = data.chunks[r][rank.chunk[i]], updates = rank.kinds[i] === "U";
  const start = startOf(rank, i), end = endOf(rank, i);
  const lines = [`${WORDS[rank.kinds[i]]} ${updates ? "to version" : "of microbatch"} ${rank.microbatch[i]}, ` +
                 `stage ${stage}${data.pipes.length > 1 ? ` of pipe ${data.pipes[pipe]}` : ""}, rank ${r}`];
  if (rank.pair[i]) lines.push(`overlapped with ${nameOf(data, r, rank.pair[i] === 1 ? i + 1 : i - 1)}`);
  lines.push(`from ${number(start)} to ${number(end)}, takes ${number(end - start)}`);
  if (rank.from[i] >= 0) {
    const made = [rank.from[i], rank.at[i]], ended = endOf(data.rank[made[0]], made[1]);
    lines.push(`${updates ? "sums gradients with the copy that runs" : "needs"} ${needOf(data, r, made)}, ` +
               `which ends at ${number(ended)}` +
               (rank.ready[i] > ended ? `; its message arrives at ${number(rank.ready[i])}` : ""));
  }
  if (rank.critical[i]) lines.push("on the critical path");
  return [nameOf(data, r, i), lines];
}

/* The text about the idle time before pass i: a name and lines. */
function wordsOfIdle(data, r, i) {
  const { from, to } = idleBefore(data, r, i), wait = waitOf(data, r, i);
  const lines = [`rank ${r}, from ${number(from)} to ${number(to)}`];
  if (i === data.rank[r].kinds.length) lines.push("nothing left to do");
  else if (!wait)
    lines.push(`${nameOf(data, r, i)} starts late${data.rank[r].kinds[i] === "U" ? "" : ": it needs no message"}`);
  else {
    const name = nameOf(data, r, wait.part), needed = needOf(data, r, wait.made);
    const ended = endOf(data.rank[wait.made[0]], wait.made[1]), late = to - wait.ready > 1e-6 * data.makespan;
    if (late && wait.ready <= from) lines.push(`${name} starts late: ${needed} ended at ${number(ended)}`);
    else {
      lines.push(`waits for ${needed}${late || wait.ready > ended ? `, which ends at ${number(ended)}` : ""}`);
      const what = data.rank[r].kinds[wait.part] === "U" ? "its gradients arrive" : "its message arrives";
      lines.push(late ? `${name} starts ${number(to - wait.ready)} after that`
                      : `${what} at ${number(wait.ready)}, for ${name}`);
    }
  }
  return [`idle for ${number(to - from)}`, lines];
}

/* The passes of a microbatch, each as [rank, pass], in the order of their starts. */
function passesOf(data, { pipe, microbatch }) {
  const found = [];
  data.rank.forEach((rank, r) => rank.microbatch.forEach((of, i) => {
    if (of === microbatch && rank.kinds[i] !== "U" && data.chunks[r][rank.chunk[i]][0] === pipe) found.push([r, i]);
  }));
  return found.sort(([r, i], [other, j]) => startOf(data.rank[r], i) - startOf(data.rank[other], j));
}
