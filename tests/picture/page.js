/* A reader of the page (page.c): points, clicks, types, saves; writes down what the page says to that. */
const said = [], panel = panels[0];
const say = (...words) => said.push(words.join(" "));
const lines = () => $("tip").innerText.split("\n").slice(0, 4);
const tip = () => $("tip").style.visibility === "visible" ? lines().join(" | ") : "no tip";
const press = (key, target = panel.canvas) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
function point(type, time, r) {
  const box = panel.canvas.getBoundingClientRect(), clientX = box.left + panel.x(time);
  const clientY = box.top + panel.y(r) + panel.row / 2;
  panel.canvas.dispatchEvent(new PointerEvent(type, { clientX, clientY, pointerId: 1, bubbles: true }));
}
function click(time, r) {
  point("pointerdown", time, r);
  point("pointerup", time, r);
}

panel.canvas.setPointerCapture = () => {};
panel.draw();
say("linked:", tip());
const end = panel.data.makespan;
point("pointermove", panel.data.rank[1].start[0] / 2, 1);
say("first:", tip());
point("pointermove", end - 0.01, 1);
say("last:", tip());

click(panel.data.rank[0].start[3], 0);
say("clicked:", panel.note);
say("in the field:", $("microbatch").value, $("pipe").value, "faint:", panel.faint(0, 0), panel.faint(0, 3));
say("ranks:", new Set(panel.trail.map(([r]) => r)).size,
    "passes:", panel.trail.map(([r, i]) => nameOf(panel.data, r, i)).slice(0, 9).join(" "));
press("n");
say("next:", panel.note);
press("p");
press("p");
say("before:", panel.note);
const svg = new DOMParser().parseFromString(svgOf(), "image/svg+xml"), root = svg.documentElement, canvas = canvasOf();
say("svg:", svg.querySelector("parsererror") ? "not well-formed" : root.tagName, root.textContent.includes(panel.note),
    [...svg.querySelectorAll("text")].filter(text => /^rank /.test(text.textContent)).length, "ranks");
say("png:", canvas.width / 2 === +root.getAttribute("width"), canvas.getContext("2d").getImageData(1, 1, 1, 1).data.join());
HTMLAnchorElement.prototype.click = function () { say("saved:", this.download, this.href.startsWith("blob:")); };
$("svg").click();
const faint = [...svg.querySelectorAll("text[fill-opacity]")].map(text => text.getAttribute("fill"));
say("faint numbers:", faint.length > 100, ...new Set(faint));
press("Escape");
say("none:", panel.note === "" && $("microbatch").value === "", tip());
$("microbatch").value = "7";
$("microbatch").dispatchEvent(new Event("input"));
say("typed:", panel.note);
press("5", $("microbatch"));
press("0", $("microbatch"));
press("Escape");

press("ArrowRight");
press("Home");
say("home:", tip());
press("f");
say("followed:", panel.note);
for (let i = 0; i < 17; i++) press("ArrowRight");
say("at:", tip());
for (let i = 0; i < 3; i++) press("ArrowRight");
say("idle:", tip());
press("Enter");
say("maker:", tip());

add(parse($("trace").textContent));
const traced = panels[1].data;
let different = 0;
traced.rank.forEach((rank, r) => rank.from.forEach((from, i) => {
  const own = panel.data.rank[r];
  different += from !== own.from[i] || rank.at[i] !== own.at[i];
}));
say("trace:", traced.rank.length, "ranks, waits that differ:", different,
    nameOf(traced, 0, 18) === nameOf(panel.data, 0, 18));
document.body.append(Object.assign(document.createElement("pre"), { id: "said", textContent: said.join("\n") }));
