/* ---- what is seen ---- */

const $ = id => document.getElementById(id);
const panels = [];
let waiting = false;

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; panels.forEach(panel => panel.draw()); });
}

function look(from, to) {
  const longest = view.longest, span = Math.min(Math.max(to - from, longest * 1e-7), longest * 1.02);
  view.from = Math.max(0, Math.min(from, longest * 1.02 - span));
  view.to = view.from + span;
  redraw();
}

function move(time) { look(view.from + time, view.to + time); }

function zoom(factor, around) {
  const selected = panels.find(panel => panel.selected);
  if (around === undefined && selected) {
    const { from, to } = selected.spanOf(selected.selected);
    around = (from + to) / 2 * selected.factor;
  }
  if (around === undefined || around < view.from || around > view.to) around = (view.from + view.to) / 2;
  look(around - (around - view.from) * factor, around + (view.to - around) * factor);
  if (selected) selected.describe();
}

function fit() { look(0, view.longest * 1.02); }

function toggle(what, on) {
  shown[what] = $(what).checked = on;
  $("tip").style.visibility = "hidden";
  redraw();
}

/* Highlights a microbatch, { pipe, microbatch }, on all ranks; null: none. */
function follow(which) {
  followed = which;
  $("microbatch").value = which ? which.microbatch : "";
  if (which) $("pipe").value = which.pipe;
  panels.forEach(panel => panel.follow());
  redraw();
}

function followNumber(text) {
  const microbatch = Math.min(Math.max(0, +text), +$("microbatch").max);
  follow(text === "" ? null : { pipe: +$("pipe").value, microbatch });
}

function followNext(step) {
  followNumber(followed ? String(followed.microbatch + step) : step > 0 ? "0" : $("microbatch").max);
}

/* Sets which microbatches and pipes the reader can choose to follow. */
function offerMicrobatches() {
  const pipes = panels[0].data.pipes;
  $("microbatch").max = Math.max(...panels.flatMap(panel => panel.data.rank.map(rank =>
    rank.microbatch.reduce((most, of, i) => rank.kinds[i] === "U" ? most : Math.max(most, of), 0))));
  $("pipe").replaceChildren(...pipes.map((name, p) => new Option(`pipe ${name}`, p)));
  $("pipe").hidden = pipes.length === 1;
}

function showLegend() {
  $("legend").replaceChildren(...legend(panels.map(panel => panel.data)).map(([swatches, words]) => {
    const entry = document.createElement("span");
    for (const [background, color, textContent] of swatches) {
      const swatch = Object.assign(document.createElement("i"), { textContent });
      Object.assign(swatch.style, { background, color });
      entry.append(swatch);
    }
    entry.append(words);
    return entry;
  }));
}

function add(data) {
  if (Object.values(data.palette)[0].length > (palette.F || []).length) palette = data.palette;
  const panel = new Panel(data);
  panels.push(panel);
  if (panels.length > 1) {
    const remove = Object.assign(document.createElement("button"), { textContent: "remove" });
    remove.addEventListener("click", () => {
      panels.splice(panels.indexOf(panel), 1);
      panel.section.remove();
      arrange();
    });
    panel.heading.append(remove);
  }
  arrange();
}

function arrange() {
  view.longest = Math.max(...panels.map(panel => panel.data.makespan)) || 1;
  $("stretching").hidden = $("stretch-key").hidden = panels.length === 1;
  if (panels.length === 1) toggle("stretch", false);
  showLegend();
  offerMicrobatches();
  follow(followed);
  fit();
}

async function compare(file) {
  $("problem").textContent = "";
  try {
    add(parse(await file.text()));
  } catch (problem) {
    $("problem").textContent = `${file.name}: ${problem.message}`;
  }
}

/* Restores the view from the address, such as
   #critical,messages,memory,from=10,to=30,rank=0,pass=5,microbatch=3,pipe=1. With `idle`, selects the idle time before
   the pass. */
function restore() {
  const words = new URLSearchParams(location.hash.slice(1).replaceAll(",", "&"));
  for (const what of Object.keys(shown)) if (words.has(what)) toggle(what, true);
  if (words.has("to")) look(+(words.get("from") || 0), +words.get("to"));
  $("pipe").value = words.get("pipe") || 0;
  followNumber(words.get("microbatch") || "");
  panels[0].draw();
  const data = panels[0].data, r = +words.get("rank"), i = +words.get("pass"), idle = words.has("idle");
  const passes = words.has("pass") && data.rank[r] ? data.rank[r].kinds.length : -1;
  if (idle ? i <= passes && idleBefore(data, r, i) : i < passes) panels[0].select({ r, i, idle }, true);
}

for (const what of Object.keys(shown)) $(what).addEventListener("change", event => toggle(what, event.target.checked));
$("in").addEventListener("click", () => zoom(1 / 1.5));
$("out").addEventListener("click", () => zoom(1.5));
$("fit").addEventListener("click", fit);
$("microbatch").addEventListener("input", event => followNumber(event.target.value));
$("pipe").addEventListener("change", () => followNumber($("microbatch").value));
$("svg").addEventListener("click", saveSvg);
$("png").addEventListener("click", savePng);
$("second").addEventListener("change", event => {
  if (event.target.files[0]) compare(event.target.files[0]);
  event.target.value = "";
});
addEventListener("dragover", event => event.preventDefault());
addEventListener("drop", event => {
  event.preventDefault();
  if (event.dataTransfer.files[0]) compare(event.dataTransfer.files[0]);
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dress(); redraw(); });
addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape") {
    panels[0].select(null, false);
    return follow(null);
  }
  if (event.target.matches("select, input[type=number]")) return;
  const keys = {
    "+": () => zoom(1 / 1.5), "=": () => zoom(1 / 1.5), "-": () => zoom(1.5), "0": fit,
    c: () => toggle("critical", !shown.critical), m: () => toggle("messages", !shown.messages),
    a: () => toggle("memory", !shown.memory), s: () => toggle("stretch", !shown.stretch && panels.length > 1),
    n: () => followNext(1), p: () => followNext(-1),
  };
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
});

dress();
const first = JSON.parse($("timeline").textContent);
document.title = `${first.schedule}: timeline`;
add(first);
if ($("below")) add(JSON.parse($("below").textContent));
restore();
document.body.dataset.passes = first.rank.reduce((sum, rank) => sum + rank.kinds.length, 0);
document.body.dataset.peak = first.peak;
