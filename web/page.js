/* The page: a text, sizes and costs as fields, and what commands of dpc say about them. */

"use strict";
const $ = id => document.getElementById(id);
const fields = ["ranks", "microbatches", "parameters", "costs"];
let schedules = {}, module, worker, busy = null, view, next = 0;

/* What the page shows: each view is the output of one command. `others`: the command reads the gallery. */
const views = [
  { name: "Picture", args: file => ["--emit=html", ...sizes(), file] },
  { name: "Where the time goes", args: file => ["--explain", ...sizes(), file] },
  { name: "Channels", args: file => ["check", ...sizes(), file] },
  { name: "Compare", others: true, args: file => ["compare", ...sizes(), file, ...others()] },
  { name: "Advise", others: true, args: file => ["advise", ...sizes(), file] },
  { name: "Statistics", args: file => ["--emit=stats", ...sizes(), file] },
  { name: "Instructions", args: file => ["--emit=asm", ...sizes(), file] },
];

/* The gallery's schedules, but the one that the text is made from. */
function others() {
  const names = Object.keys(schedules).filter(name => name !== nameOf() && name !== $("gallery").value);
  return names.map(name => `/dpc/schedules/${name}.dps`);
}

function sizes() {
  const words = value => value.trim().split(/\s+/).filter(word => word);
  return [
    ...($("ranks").value ? ["--ranks", $("ranks").value] : []),
    ...($("microbatches").value ? ["--microbatches", $("microbatches").value] : []),
    ...words($("parameters").value).flatMap(word => ["-D", word]),
    ...words($("costs").value).flatMap(word => ["--cost", word]),
  ];
}

/* ---- commands ---- */

/* Runs one command in the worker. A command that is still running is stopped: only the newest one matters. */
function run(args, files) {
  if (busy) {
    worker.terminate();
    worker = null;
    busy.stopped();
  }
  worker ??= new Worker("worker.js");
  const id = ++next;
  return new Promise(done => {
    const end = result => { busy = null; done(result); };
    busy = { stopped: () => end(null) };
    worker.onmessage = ({ data }) => { if (data.id === id) end(data); };
    worker.onerror = error => { worker = null; end({ code: 1, out: "", error: `dpc did not start: ${error.message}` }); };
    worker.postMessage({ id, module, files, args });
  });
}

const text = () => $("text").value;
const isOrder = () => !/^\s*(#.*\n\s*)*schedule\b/.test(text()) && /^[^\n#;]*,/m.test(text());
const nameOf = () => (/\bschedule\s+([\w-]+)/.exec(text()) ?? [, "order"])[1];
const fileName = () => nameOf() + (isOrder() ? ".csv" : ".dps");

async function show() {
  const chosen = view, began = performance.now(), file = fileName();
  const files = { [file]: text() };
  if (chosen.others)
    for (const [name, source] of Object.entries(schedules)) files[`/dpc/schedules/${name}.dps`] = source;
  $("state").textContent = "computing …";
  $("stop").hidden = false;
  const result = await run(chosen.args(file), files);
  if (!result) return;
  $("stop").hidden = true;
  $("state").textContent = `${Math.round(performance.now() - began)} ms`;
  tell(result, chosen);
  remember();
}

/* Shows the result of a view. After an error the last picture stays, and the message names the line. */
function tell(result, chosen) {
  const failed = result.code !== 0, isPicture = chosen.name === "Picture";
  const lines = [...result.error.matchAll(/^[^\s:]+:(\d+):\d+: error/gm)].map(match => +match[1]);
  paint(lines);
  $("said").textContent = isPicture || failed ? result.error : "";
  $("said").className = failed ? "bad" : "";
  $("said").hidden = !$("said").textContent;
  if (isPicture && !failed) $("picture").srcdoc = result.out;
  if (!isPicture) $("answer").textContent = result.out || (failed ? "" : result.error);
  $("picture").hidden = !isPicture;
  $("answer").hidden = isPicture;
}

/* ---- the editor ---- */

const words = /(#.*)|("[^"\n]*")|\b(schedule|ranks|microbatches|param|require|pipe|pipes|stages?|stage|on|let|repeat|at|rank|ranks|order|auto|overlap|split|from|squeeze|input|weight|memory|copies|compute|comm|after|cost|forward|only|version|update)\b|(\b\d+(?:\.\d+)?)|\b((?:n|[FBIW]\d?)[FBIWn0-9]*)(?=[\s\[&;:])/g;
const escape = source => source.replace(/&/g, "&amp;").replace(/</g, "&lt;");

function coloured(line) {
  let html = "", end = 0;
  for (const match of line.matchAll(words)) {
    const tag = ["s", "q", "b", "u", "i"][match.slice(1).findIndex(group => group !== undefined)];
    html += `${escape(line.slice(end, match.index))}<${tag}>${escape(match[0])}</${tag}>`;
    end = match.index + match[0].length;
  }
  return html + escape(line.slice(end));
}

/* Colours the text. Marks the lines with these numbers, from 1. */
function paint(marked = []) {
  $("colours").innerHTML = text().split("\n").map((line, i) => marked.includes(i + 1) ? `<mark>${coloured(line)} </mark>` : coloured(line)).join("\n") + "\n ";
  $("colours").querySelector("mark")?.scrollIntoView({ block: "nearest" });
}

let pause;
function changed() {
  paint();
  clearTimeout(pause);
  pause = setTimeout(show, 250);
}

/* ---- links: the part after # has everything that the page shows ---- */

function remember() {
  const state = Object.fromEntries(fields.filter(name => $(name).value).map(name => [name, $(name).value]));
  const known = $("gallery").value && text() === schedules[$("gallery").value];
  Object.assign(state, known ? { schedule: $("gallery").value } : { text: text() }, view === views[0] ? {} : { view: view.name });
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(state)));
}

function recall() {
  let state = {};
  try {
    state = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}");
  } catch { /* not one of our links: begin with the first schedule */ }
  for (const name of fields) $(name).value = state[name] ?? "";
  $("gallery").value = state.text === undefined ? (state.schedule in schedules ? state.schedule : "dualpipe") : "";
  $("text").value = state.text ?? schedules[$("gallery").value];
  choose(views.find(each => each.name === state.view) ?? views[0]);
}

function save(name, content) {
  const link = Object.assign(document.createElement("a"), { download: name, href: URL.createObjectURL(new Blob([content])) });
  link.click();
  URL.revokeObjectURL(link.href);
}

/* ---- start ---- */

function choose(which) {
  view = which;
  for (const tab of $("views").querySelectorAll("[role=tab]")) {
    tab.ariaSelected = tab.textContent === which.name;
    tab.tabIndex = tab.textContent === which.name ? 0 : -1;
  }
  changed();
}

function offerViews() {
  for (const each of views) {
    const tab = Object.assign(document.createElement("button"), { textContent: each.name, role: "tab", onclick: () => choose(each) });
    tab.setAttribute("role", "tab");
    tab.onkeydown = ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const to = (views.indexOf(each) + step + views.length) % views.length;
      choose(views[to]);
      $("views").children[to].focus();
    };
    $("views").append(tab);
  }
  const stop = Object.assign(document.createElement("button"), { id: "stop", textContent: "Stop", hidden: true });
  stop.onclick = () => {
    if (!busy) return;
    worker.terminate();
    worker = null;
    busy.stopped();
    stop.hidden = true;
    $("state").textContent = "stopped";
  };
  const state = Object.assign(document.createElement("span"), { id: "state" });
  $("views").append(state, stop);
}

async function start() {
  const wasm = fetch("dpc.wasm").then(answer => answer.arrayBuffer()).then(bytes => WebAssembly.compile(bytes));
  const read = async name => (await fetch(`schedules/${name}`)).text();
  const names = (await read("names")).trim().split("\n");
  schedules = Object.fromEntries(await Promise.all(names.map(async name => [name.replace(".dps", ""), await read(name)])));
  module = await wasm;
  offerViews();
  $("gallery").append(new Option("(your own)", ""), ...Object.keys(schedules).map(name => new Option(name, name)));
  $("gallery").onchange = () => { if ($("gallery").value) { $("text").value = schedules[$("gallery").value]; changed(); } };
  $("text").oninput = changed;
  for (const name of fields) $(name).oninput = changed;
  $("save").onclick = () => save(fileName(), text());
  $("link").onclick = async () => {
    remember();
    await navigator.clipboard.writeText(location.href);
    $("state").textContent = "link copied";
  };
  onhashchange = recall;
  recall();
}

start().catch(error => { $("said").textContent = `The page did not start: ${error.message}. It needs a file server (python3 -m http.server) and a browser with WebAssembly.`; $("said").className = "bad"; });
