/* ---- a timeline as it is drawn ---- */

const LABELS = 84, AXIS = 24, MOST_ROW = 44, LEAST_ROW = 17, TWO_LINES = 28, GAP = 4, STRIP = 22, MOST_ARROWS = 8000;
const FAINT = 0.2, LEAST_TRAIL = 3, LEAST_NUMBER = 8, LEAST_NAME = 14;

const view = { from: 0, to: 1, longest: 1 };   // the times that are shown; all panels show the same
const shown = { critical: false, messages: false, memory: false, stretch: false };
let followed = null;                           // the microbatch that is followed: { pipe, microbatch }
let palette = {};
const theme = {};                              // the page's colours, by the names that its style gives them

function dress() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "paper", "over", "fill", "outline", "arrow", "seam", "path", "focus"])
    theme[name] = style.getPropertyValue("--" + name).trim();
}

function coloursOf(data, r, i) {
  const shades = palette[data.rank[r].kinds[i]], shade = data.chunks[r][data.rank[r].chunk[i]][2];
  return shades[Math.min(shade, shades.length - 1)];
}

/* The entries of the legend: for each, swatches [[fill, ink, letter], ...] and words. */
function legend(timelines) {
  const ranks = timelines.flatMap(data => data.rank), kinds = new Set(ranks.flatMap(rank => [...new Set(rank.kinds)]));
  const data = timelines[0];
  const entries = ["F", "B", "I", "W", "U"].filter(kind => kinds.has(kind)).map(kind =>
    [palette[kind].slice(0, 4).map(([fill, ink]) => [fill, ink, kind]), WORDS[kind]]);
  if (ranks.some(rank => rank.pair.includes(1))) entries.push([[], `framed: F&${kinds.has("B") || kinds.has("I") ? "B" : "F"}, overlapped`]);
  entries.push([[], `numbers: microbatches${kinds.has("U") ? ", of an update the version that it makes" : ""}`]);
  entries.push([[], "empty: idle"]);
  if (palette.F.length > 1) {
    const names = data.pipes.length > 1 ? data.pipes : palette.F.map((_, i) => i);
    const what = data.pipes.length === 1 ? "chunks" : palette.F.length > names.length ? "chunks of pipes" : "pipes";
    entries.push([[], `light to dark: ${what} ${names.join(", ")}`]);
  }
  return entries;
}

/* The largest font size at which this many digits fit into a cell. */
function fontOf(width, digits) { return Math.floor((width - 2) / (0.62 * digits)); }

/* Draws a timeline with a `pen`: the context of a canvas, or an SvgPen. */
class Drawing {
  constructor(data) {
    this.data = prepare(data);
    this.top = 0;           // pixels scrolled out of view at the top
    this.row = MOST_ROW;    // height of a rank's cells
    this.width = this.height = 0;
    this.selected = null;   // { r, i, idle }: pass i of rank r; idle: the idle time before it
    this.trail = null;      // the passes of the microbatch that is followed
  }

  get title() {
    const { ranks, microbatches, makespan, bound, bubble, trains, peak } = this.data;
    const gap = bound ? (bound < makespan ? ` (bound ${number(bound)}, gap ${(100 * (makespan / bound - 1)).toFixed(1)} %)` : " (optimal)") : "";
    return `${counted(ranks, "rank", "s")}, ${counted(microbatches, "microbatch", "es")}; ` +
      `makespan ${number(makespan)}${gap}, bubble ${(100 * bubble).toFixed(1)} %` +
      (trains ? `; at most ${counted(peak, "activation", "s")} on a rank` : "");
  }
  /* A line of text about the microbatch that is followed. */
  get note() {
    if (!this.trail) return "";
    if (!this.trail.length) return `no microbatch ${followed.microbatch} here`;
    const start = Math.min(...this.trail.map(([r, i]) => startOf(this.data.rank[r], i)));
    const end = Math.max(...this.trail.map(([r, i]) => endOf(this.data.rank[r], i)));
    const pipe = this.data.pipes.length > 1 ? ` of pipe ${this.data.pipes[followed.pipe]}` : "";
    const passes = counted(this.trail.length, "pass", "es");
    return `microbatch ${followed.microbatch}${pipe}: ${passes} from ${number(start)} to ${number(end)}`;
  }

  /* Rows lower than LEAST_ROW have lower gaps and strips too: then all ranks fit, however many. */
  get lower() { return Math.min(1, this.row / LEAST_ROW); }
  get gap() { return GAP * this.lower; }
  get strip() { return shown.memory ? STRIP * this.lower : 0; }
  get pitch() { return this.row + this.gap + this.strip; }
  get plot() { return this.width - LABELS - 8; }
  /* What is shown, in the time of this timeline: `stretch` draws all timelines equally long. */
  get factor() { return shown.stretch ? view.longest / (this.data.makespan || 1) : 1; }
  get from() { return view.from / this.factor; }
  get to() { return view.to / this.factor; }
  x(time) { return LABELS + (time * this.factor - view.from) / (view.to - view.from) * this.plot; }
  time(x) { return this.from + (x - LABELS) / this.plot * (this.to - this.from); }
  y(r) { return AXIS + r * this.pitch - this.top; }

  scrollTo(top) {
    this.top = Math.max(0, Math.min(top, AXIS + this.data.ranks * this.pitch + 4 - this.height));
  }

  paint(pen) {
    this.pen = pen;
    /* numbers have the same size in all cells, unless the narrowest cells have room only for small numbers */
    const narrowest = this.x(this.data.shortest) - this.x(0), digits = String(this.data.most).length;
    this.largest = Math.max(10, Math.min(14, fontOf(narrowest, digits)));
    this.letters = fontOf(narrowest - this.largest, digits) >= this.largest;   // beside the numbers, where rows are low
    const first = Math.max(0, Math.floor(this.top / this.pitch));
    const last = Math.min(this.data.ranks, Math.ceil((this.top + this.height) / this.pitch));
    this.clipped(LABELS, this.plot + 8, () => {
      for (let r = first; r < last; r++) {
        this.drawPasses(r);
        if (shown.memory) this.drawMemory(r);
      }
      if (shown.messages) this.drawMessages();
      if (this.trail) this.drawTrail();
      if (shown.critical) this.drawCritical();
      if (this.selected) this.drawSelected();
    });
    this.drawScrollbar();
    this.clipped(0, LABELS, () => this.drawLabels(first, last));
    this.drawAxis();
  }

  clipped(x, width, draw) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(x, AXIS, width, this.height - AXIS);
    this.pen.clip();
    draw();
    this.pen.restore();
  }

  /* Whether a pass is drawn faint: other passes, followed or on the critical path, are highlighted. */
  faint(r, i) {
    const followed = this.trailed && this.trailed[r].has(i), critical = shown.critical && this.data.rank[r].critical[i];
    return (this.trailed || shown.critical) && !followed && !critical;
  }

  follow() {
    this.trail = followed && passesOf(this.data, followed);
    this.trailed = this.trail && this.data.rank.map(() => new Set());
    for (const [r, i] of this.trail || []) this.trailed[r].add(i);
  }

  drawLabels(first, last) {
    const pen = this.pen;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    const step = [1, 2, 4, 8, 16, 32, 64, 128, 256].find(step => step * this.pitch >= LEAST_NAME) || 512;
    for (let r = Math.ceil(first / step) * step; r < last; r += step) {
      pen.fillStyle = theme.ink;
      pen.font = "13px Arial, sans-serif";
      pen.fillText(`rank ${r}`, 0, this.y(r) + Math.max(this.row, LEAST_NAME) / 2);
      if (this.strip < STRIP) continue;
      pen.fillStyle = theme.soft;
      pen.font = "11px Arial, sans-serif";
      pen.fillText(`holds \u2264 ${this.data.rank[r].peak}`, 0, this.y(r) + this.row + this.strip / 2 + 1);
    }
  }

  drawScrollbar() {
    const all = this.data.ranks * this.pitch + 4, room = this.height - AXIS;
    if (all < room + 1) return;
    this.pen.fillStyle = theme.over;
    this.pen.fillRect(this.width - 7, AXIS, 7, room);
    this.pen.fillStyle = theme.line;
    this.pen.fillRect(this.width - 7, AXIS + this.top / all * room, 7, Math.max(room * room / all, 12));
  }

  drawAxis() {
    const pen = this.pen, least = (this.to - this.from) / this.plot * 90, power = 10 ** Math.floor(Math.log10(least));
    const step = power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
    pen.strokeStyle = theme.line;
    pen.fillStyle = theme.soft;
    pen.font = "11px Arial, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(LABELS, AXIS - 4.5);
    pen.lineTo(LABELS + this.plot, AXIS - 4.5);
    for (let i = Math.ceil(this.from / step); i * step <= this.to * (1 + 1e-12); i++) {
      const x = this.x(i * step);
      pen.moveTo(x, AXIS - 4.5);
      pen.lineTo(x, AXIS - 9);
      const text = number(i * step);
      pen.fillText(text, Math.min(x, this.width - pen.measureText(text).width / 2), AXIS - 12);
    }
    pen.stroke();
    pen.textAlign = "left";
    pen.fillText(this.data.unit ? `time, ${this.data.unit}` : "time", 0, AXIS - 12);
  }

  drawPasses(r) {
    const pen = this.pen, data = this.data, rank = data.rank[r], y = this.y(r);
    let column = -1;
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    pen.lineWidth = 1;
    for (let i = firstEndingAfter(rank, this.from); i < rank.start.length && rank.start[i] < this.to; i++) {
      let x = this.x(rank.start[i]), width = this.x(rank.end[i]) - x;
      if (rank.kinds[i] === "U" && width < 3) {    // visible even if it takes no time
        x += width - 3;                            // a bar that ends at its time, over the pass before it
        width = 3;
      } else if (width < 1) {          // passes that share a column of pixels are drawn once
        if (Math.floor(x) === column) continue;
        column = Math.floor(x);
      }
      const [fill, ink] = coloursOf(data, r, i), faint = this.faint(r, i);
      pen.globalAlpha = faint ? FAINT : 1;
      pen.fillStyle = fill;
      pen.fillRect(x, y, Math.max(width, 1), this.row);
      if (width > 4 && this.row > 4) {
        pen.strokeStyle = "#333";
        pen.lineWidth = 0.6;
        pen.strokeRect(x, y, width, this.row);
      }
      this.drawNumber(rank.kinds[i], String(rank.microbatch[i]), x, y, width, faint ? theme.ink : ink);
    }
    pen.globalAlpha = 1;
    this.drawFrames(r);
  }

  drawNumber(kind, text, x, y, width, ink) {
    const pen = this.pen, size = Math.min(this.largest, fontOf(width, text.length)), middle = x + width / 2;
    if (size < LEAST_NUMBER || this.row < size) return;
    pen.fillStyle = ink;
    pen.font = `${size}px Arial, sans-serif`;
    if (this.row < TWO_LINES)
      return pen.fillText(this.letters ? kind + text : text, middle, y + this.row / 2 + 5);
    pen.fillText(text, middle, y + this.row / 2);
    pen.font = `${Math.min(10, size - 1)}px Arial, sans-serif`;
    pen.fillText(kind, middle, y + this.row / 2 + 11);
  }

  drawFrames(r) {    // drawn after all cells, over their edges
    const pen = this.pen, rank = this.data.rank[r];
    pen.strokeStyle = theme.ink;
    for (let i = firstEndingAfter(rank, this.from); i < rank.start.length && rank.start[i] < this.to; i++) {
      if (rank.pair[i] !== 2) continue;
      const left = this.x(rank.start[i - 1]), width = this.x(rank.end[i]) - left;
      if (width <= 4 || this.row <= 4) continue;
      pen.globalAlpha = this.faint(r, i) && this.faint(r, i - 1) ? FAINT : 1;
      pen.lineWidth = Math.min(2, width / 16);   // a wider frame would cover a narrow cell
      pen.strokeRect(left, this.y(r), width, this.row);
    }
    pen.globalAlpha = 1;
  }

  drawMemory(r) {
    const pen = this.pen, rank = this.data.rank[r];
    const bottom = this.y(r) + this.row + this.strip, scale = (this.strip - this.gap) / (this.data.peak || 1);
    let low = 0, high = rank.held.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rank.held[middle][0] >= this.from) high = middle; else low = middle + 1;
    }
    let held = low ? rank.held[low - 1][1] : 0;
    pen.beginPath();
    pen.moveTo(LABELS, bottom);
    pen.lineTo(LABELS, bottom - held * scale);
    for (let i = low; i < rank.held.length && rank.held[i][0] <= this.to; i++) {
      const x = this.x(rank.held[i][0]);
      pen.lineTo(x, bottom - held * scale);
      held = rank.held[i][1];
      pen.lineTo(x, bottom - held * scale);
    }
    const right = this.x(Math.min(this.to, this.data.makespan));
    pen.lineTo(right, bottom - held * scale);
    pen.lineTo(right, bottom);
    pen.closePath();
    pen.fillStyle = theme.fill;
    pen.fill();
    pen.strokeStyle = theme.outline;
    pen.lineWidth = 1;
    pen.stroke();
  }

  /* Draws an arrow with an edge of another colour, so that it is visible on every colour. */
  drawArrow(fromRank, from, toRank, to) {
    const data = this.data, pen = this.pen, { strokeStyle, lineWidth } = pen;
    const x0 = this.x(endOf(data.rank[fromRank], from)), y0 = this.y(fromRank) + this.row / 2;
    const x1 = this.x(startOf(data.rank[toRank], to)), y1 = this.y(toRank) + this.row / 2;
    const length = Math.hypot(x1 - x0, y1 - y0) || 1, dx = (x1 - x0) / length, dy = (y1 - y0) / length;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.moveTo(x1 - 7 * dx + 3.5 * dy, y1 - 7 * dy - 3.5 * dx);
    pen.lineTo(x1, y1);
    pen.lineTo(x1 - 7 * dx - 3.5 * dy, y1 - 7 * dy + 3.5 * dx);
    pen.strokeStyle = theme.seam;
    pen.lineWidth = lineWidth + 2;
    pen.stroke();
    pen.strokeStyle = strokeStyle;
    pen.lineWidth = lineWidth;
    pen.stroke();
  }

  /* Draws the messages as arrows, but none if there are more than MOST_ARROWS. */
  drawMessages() {
    const pen = this.pen, data = this.data, arrows = [], from = this.from, to = this.to;
    for (let r = 0; r < data.ranks && arrows.length <= MOST_ARROWS; r++) {
      const rank = data.rank[r];
      for (let i = firstEndingAfter(rank, from); i < rank.start.length && arrows.length <= MOST_ARROWS; i++) {
        const sender = rank.from[i];
        if (sender < 0 || sender === r || rank.kinds[i] === "U") continue;
        if (endOf(data.rank[sender], rank.at[i]) > to) {
          if (rank.start[i] > to + (to - from)) break;
          continue;
        }
        const above = Math.min(this.y(r), this.y(sender)), below = Math.max(this.y(r), this.y(sender));
        if (below > 0 && above < this.height) arrows.push([sender, rank.at[i], r, i]);
      }
    }
    if (arrows.length > MOST_ARROWS) {
      pen.font = "bold 13px Arial, sans-serif";
      pen.textAlign = "left";
      pen.strokeStyle = theme.paper;
      pen.lineWidth = 5;
      pen.strokeText("messages: zoom in to see them", LABELS + 10, AXIS + 20);
      pen.fillStyle = theme.ink;
      pen.fillText("messages: zoom in to see them", LABELS + 10, AXIS + 20);
      return;
    }
    pen.strokeStyle = theme.arrow;
    pen.lineWidth = 1.2;
    for (const arrow of arrows) this.drawArrow(...arrow);
  }

  /* Draws the messages of the microbatch that is followed, and widens its passes that are too narrow to see. */
  drawTrail() {
    const pen = this.pen, data = this.data;
    for (const [r, i] of this.trail) {
      const x = this.x(data.rank[r].start[i]);
      if (this.x(data.rank[r].end[i]) - x >= LEAST_TRAIL) continue;
      pen.fillStyle = coloursOf(data, r, i)[0];
      pen.fillRect(x, this.y(r), LEAST_TRAIL, this.row);
    }
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 1.8;
    for (const [r, i] of this.trail) {
      const rank = data.rank[r];
      if (rank.from[i] >= 0 && rank.from[i] !== r) this.drawArrow(rank.from[i], rank.at[i], r, i);
    }
  }

  drawCritical() {
    const pen = this.pen, data = this.data;
    pen.strokeStyle = theme.path;
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.beginPath();
    let before = null;
    for (const [r, i] of data.critical) {
      const x0 = this.x(startOf(data.rank[r], i)), x1 = this.x(endOf(data.rank[r], i));
      if (before && before[0] !== r) {
        pen.moveTo(before[1], this.y(before[0]) + this.row / 2);
        pen.lineTo(x0, this.y(r) + this.row / 2);
      }
      if (x1 - x0 > 3) pen.rect(x0 + 1, this.y(r) + 1, x1 - x0 - 2, this.row - 2);
      else { pen.moveTo(x0, this.y(r) + this.row / 2); pen.lineTo(x1, this.y(r) + this.row / 2); }
      before = [r, x1];
    }
    pen.stroke();
  }

  /* The time span of the selected pass or idle time. */
  spanOf({ r, i, idle }) {
    const rank = this.data.rank[r];
    return idle ? idleBefore(this.data, r, i) : { from: rank.start[i], to: rank.end[i] };
  }

  drawSelected() {
    const pen = this.pen, { r, i, idle } = this.selected, span = this.spanOf(this.selected), rank = this.data.rank[r];
    const x = this.x(span.from), width = Math.max(this.x(span.to) - x, 2);
    pen.strokeStyle = theme.paper;
    pen.lineWidth = 6;
    pen.strokeRect(x, this.y(r), width, this.row);
    pen.strokeStyle = theme.focus;
    pen.lineWidth = 3.5;
    pen.strokeRect(x, this.y(r), width, this.row);
    pen.lineWidth = 2.5;
    const wait = idle ? waitOf(this.data, r, i) : null, part = wait ? wait.part : i;
    if ((wait || !idle) && rank.from[part] >= 0 && rank.from[part] !== r)
      this.drawArrow(rank.from[part], rank.at[part], r, part);
  }
}
