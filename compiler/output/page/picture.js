/* ---- what is shown, as a picture in a file ---- */

const MARGIN = 14, LINE = 22, RESOLUTION = 2;

/* The part of a canvas's context that a Drawing uses. It turns what is drawn into SVG elements. */
class SvgPen {
  constructor() {
    this.elements = [];
    this.saved = [];
    this.path = "";
    this.clips = 0;
    this.measure = document.createElement("canvas").getContext("2d");
    this.globalAlpha = this.lineWidth = 1;
    this.lineJoin = "miter";
    this.textAlign = "left";
    this.textBaseline = "alphabetic";
  }

  save() { this.saved.push(0); }
  open(attributes) {
    this.elements.push(`<g ${attributes}>`);
    if (this.saved.length) this.saved[this.saved.length - 1]++;
  }
  restore() { this.elements.push("</g>".repeat(this.saved.pop())); }
  translate(x, y) { this.open(`transform="translate(${x} ${y})"`); }
  clip() {
    const id = `clip${this.clips++}`;
    this.elements.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`);
    this.open(`clip-path="url(#${id})"`);
  }

  beginPath() { this.path = ""; }
  closePath() { this.path += "Z"; }
  moveTo(x, y) { this.path += `M${rounded(x)} ${rounded(y)}`; }
  lineTo(x, y) { this.path += `L${rounded(x)} ${rounded(y)}`; }
  rect(x, y, width, height) {
    this.path += `M${rounded(x)} ${rounded(y)}h${rounded(width)}v${rounded(height)}h${rounded(-width)}Z`;
  }
  fill() { this.elements.push(`<path d="${this.path}" ${this.filled()}/>`); }
  stroke() { if (this.path) this.elements.push(`<path d="${this.path}" ${this.stroked()}/>`); }
  fillRect(x, y, width, height) { this.elements.push(`<rect ${box(x, y, width, height)} ${this.filled()}/>`); }
  strokeRect(x, y, width, height) { this.elements.push(`<rect ${box(x, y, width, height)} ${this.stroked()}/>`); }
  fillText(text, x, y) { this.text(text, x, y, this.filled()); }
  strokeText(text, x, y) { this.text(text, x, y, this.stroked()); }

  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }
  text(text, x, y, paint) {
    const [, bold, size] = this.font.match(/^(bold )?(\d+)px/), weight = bold ? ' font-weight="bold"' : "";
    const anchor = this.textAlign === "center" ? "middle" : "start";
    const base = rounded(this.textBaseline === "middle" ? y + size * 0.36 : y);
    const attributes = `x="${rounded(x)}" y="${base}" font-size="${size}"${weight} text-anchor="${anchor}"`;
    this.elements.push(`<text ${attributes} ${paint}>${escaped(text)}</text>`);
  }
  filled() { return this.colour("fill", this.fillStyle); }
  stroked() {
    return `fill="none" ${this.colour("stroke", this.strokeStyle)} stroke-width="${this.lineWidth}" ` +
      `stroke-linejoin="${this.lineJoin}"`;
  }

  /* SVG viewers do not know #rgba, so this splits it into colour and opacity. */
  colour(use, colour) {
    const faint = /^#(...)(.)$/.exec(colour), alpha = this.globalAlpha * (faint ? parseInt(faint[2], 16) / 15 : 1);
    return `${use}="${faint ? "#" + faint[1] : colour}"${alpha < 1 ? ` ${use}-opacity="${rounded(alpha)}"` : ""}`;
  }
}

function rounded(value) { return +value.toFixed(2); }
function box(x, y, width, height) {
  return `x="${rounded(x)}" y="${rounded(y)}" width="${rounded(width)}" height="${rounded(height)}"`;
}
function escaped(text) {
  return text.replace(/[\0-\x1f]/g, " ").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/* Draws text with swatches before it, one entry beside the other, in lines of at most `width`. Returns the y of their
   lower edge. */
function paintEntries(pen, entries, font, between, top, width) {
  let x = MARGIN, y = top + LINE / 2;
  pen.textBaseline = "middle";
  for (const [swatches, words] of entries) {
    pen.font = font;
    const indent = swatches.length ? 20 * swatches.length + 5 : 0, length = indent + pen.measureText(words).width;
    if (x > MARGIN && x + length > width - MARGIN) [x, y] = [MARGIN, y + LINE];
    pen.textAlign = "left";
    pen.fillStyle = theme.ink;
    pen.fillText(words, x + indent, y);
    pen.font = "10px Arial, sans-serif";
    pen.textAlign = "center";
    pen.strokeStyle = "#333";
    pen.lineWidth = 0.6;
    swatches.forEach(([fill, ink, letter], i) => {
      pen.fillStyle = fill;
      pen.fillRect(x + 20 * i, y - 8, 20, 16);
      pen.strokeRect(x + 20 * i, y - 8, 20, 16);
      pen.fillStyle = ink;
      pen.fillText(letter, x + 20 * i + 10, y);
    });
    x += length + between;
  }
  return y + LINE / 2;
}

/* Draws all panels as they are now, each with a title above it, then the legend. Returns the height. */
function paintAll(pen, width, height) {
  let y = MARGIN;
  pen.fillStyle = theme.paper;
  pen.fillRect(0, 0, width, height);
  for (const panel of panels) {
    const title = `${panel.data.schedule}: ${panel.title}${panel.note && "; "}${panel.note}`.split(/(?<=;) /);
    y = paintEntries(pen, title.map(words => [[], words]), "bold 15px Arial, sans-serif", 5, y, width);
    pen.save();
    pen.translate(MARGIN, y);
    panel.paint(pen);
    pen.restore();
    y += panel.height + MARGIN;
  }
  return paintEntries(pen, legend(panels.map(panel => panel.data)), "13px Arial, sans-serif", 16, y, width) + MARGIN;
}

/* Makes a picture for paper: in light colours, and without the selection. */
function painted(paint) {
  const selected = panels.map(panel => panel.selected);
  panels.forEach(panel => { panel.selected = null; });
  document.documentElement.classList.add("light");
  dress();
  try {
    const width = Math.max(...panels.map(panel => panel.width)) + 2 * MARGIN;
    return paint(width, paintAll(new SvgPen(), width, 0));
  } finally {
    document.documentElement.classList.remove("light");
    dress();
    panels.forEach((panel, i) => { panel.selected = selected[i]; });
  }
}

function svgOf() {
  return painted((width, height) => {
    const pen = new SvgPen();
    paintAll(pen, width, height);
    const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ` +
      `font-family="Helvetica, Arial, 'Liberation Sans', sans-serif">\n${pen.elements.join("\n")}\n</svg>\n`;
  });
}

function canvasOf() {
  return painted((width, height) => {
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [width * RESOLUTION, Math.ceil(height * RESOLUTION)];
    pen.scale(RESOLUTION, RESOLUTION);
    paintAll(pen, width, height);
    return canvas;
  });
}

function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${panels[0].data.schedule}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function saveSvg() { save(new Blob([svgOf()], { type: "image/svg+xml" }), "svg"); }
function savePng() { canvasOf().toBlob(blob => save(blob, "png")); }
