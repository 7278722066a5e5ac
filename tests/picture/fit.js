/* Whether Fit shows all ranks in windows of several heights (page.c), and whether zooming gives rows their names back. */
const panel = panels[0], said = [];
for (const height of [700, 300, 100]) {
  document.body.style.height = height + "px";
  for (const memory of [false, true]) {
    toggle("memory", memory);
    fit();
    panel.draw();
    said.push(panel.y(panel.data.ranks - 1) + panel.row <= panel.height + 1 && panel.row > 0 ? "all" : "cut");
  }
}
look(0, view.longest / 1000);
panel.draw();
said.push("row", panel.row);
document.body.append(Object.assign(document.createElement("pre"), { id: "said", textContent: said.join(" ") }));
