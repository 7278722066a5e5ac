/* ---- a timeline on the page, with what the reader points at ---- */

const TOUCH = 3;         // pixels that a click may move
const LEAST_ROOM = 80;   // height of a timeline in a window that has no room for it; the page then scrolls

class Panel extends Drawing {
  constructor(data) {
    super(data);
    this.section = document.createElement("section");
    this.pointed = 0;   // where the reader points, in pixels below the axis
    this.heading = document.createElement("h1");
    this.small = document.createElement("small");
    this.noted = Object.assign(document.createElement("small"), { className: "note" });
    this.heading.append(data.schedule, this.small, this.noted);
    this.small.textContent = this.title;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `timeline of ${data.schedule}: arrow keys go from pass to pass`);
    this.section.append(this.heading, this.canvas);
    $("panels").append(this.section);
    this.listen();
  }

  /* Sets the height of rows. When all of the time is shown, all ranks are too: rows are as low as that needs. Rows that
     are lower than LEAST_ROW grow with the zoom; the rank that the reader points at stays where it is. */
  layout() {
    const given = $("panels").clientHeight / panels.length - this.heading.offsetHeight - 14;
    const room = Math.max(given, LEAST_ROOM), before = this.pitch;
    const around = GAP + (shown.memory ? STRIP : 0), each = (room - AXIS - 4) / this.data.ranks;
    const row = each < LEAST_ROW + around ? each * LEAST_ROW / (LEAST_ROW + around) : Math.floor(each - around);
    const zoomed = view.longest * 1.02 / (view.to - view.from);
    this.row = Math.min(MOST_ROW, Math.max(row, Math.min(LEAST_ROW, row * zoomed)));
    this.top = (this.top + this.pointed) * this.pitch / before - this.pointed;
    const height = Math.max(AXIS + this.pitch, Math.min(AXIS + this.data.ranks * this.pitch + 4, room));
    const ratio = window.devicePixelRatio || 1;
    this.width = this.section.clientWidth - 28;
    this.height = Math.floor(height);
    const pixels = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.height = this.height + "px";
    }
    this.scrollTo(this.top);
    return ratio;
  }

  draw() {
    const ratio = this.layout(), pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.paint(pen);
  }

  follow() {
    super.follow();
    this.noted.textContent = this.note;
  }

  /* The pass, or the idle time, at a point of the canvas. */
  find(x, y) {
    const r = Math.floor((y - AXIS + this.top) / this.pitch);
    if (x < LABELS || y < AXIS || r < 0 || r >= this.data.ranks || y - this.y(r) > this.row) return null;
    const time = this.time(x), rank = this.data.rank[r], i = firstEndingAfter(rank, time);
    if (time > this.data.makespan) return null;
    if (i < rank.start.length && rank.start[i] <= time) return { r, i, idle: false };
    return idleBefore(this.data, r, i) && { r, i, idle: true };
  }

  describe() {
    const data = this.data, { r, i, idle } = this.selected, rank = data.rank[r], tip = $("tip");
    const [name, lines] = idle ? wordsOfIdle(data, r, i) : wordsOfPass(data, r, i);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: name }));
    for (const line of lines) tip.append(document.createElement("br"), line);
    const source = !idle && rank.line[i] ? data.source.lines[rank.line[i] - 1] : "";
    const place = `${data.source.file}:${rank.line[i]}: ${source.trim()}`;
    if (source) tip.append(Object.assign(document.createElement("code"), { textContent: place }));
    const box = this.canvas.getBoundingClientRect(), y = box.top + this.y(r), below = y + this.row + 8;
    const x = box.left + Math.max(this.x(this.spanOf(this.selected).from), LABELS);
    tip.style.left = Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 12)) + "px";
    tip.style.top = (below + tip.offsetHeight + 2 < innerHeight ? below : Math.max(4, y - tip.offsetHeight - 8)) + "px";
    tip.style.visibility = "visible";
  }

  select(found, reveal) {
    panels.forEach(panel => { if (panel !== this) panel.selected = null; });
    this.selected = found;
    if (!found) $("tip").style.visibility = "hidden";
    else {
      const { r } = found, { from, to } = this.spanOf(found);
      const span = view.to - view.from, middle = (from + to) / 2 * this.factor;
      if (reveal && (from < this.from || to > this.to)) look(middle - span / 2, middle + span / 2);
      if (reveal && this.y(r) < AXIS) this.scrollTo(r * this.pitch);
      if (reveal && this.y(r) + this.pitch > this.height) this.scrollTo(AXIS + (r + 1) * this.pitch - this.height);
      this.describe();
    }
    redraw();
  }

  /* The microbatch of a pass, or the one that idle time waits for; null: none. */
  microbatchOf(found) {
    const wait = found && found.idle ? waitOf(this.data, found.r, found.i) : null;
    if (!found || found.idle && (!wait || found.i === this.data.rank[found.r].kinds.length)) return null;
    const [r, i] = wait ? wait.made : [found.r, found.i], rank = this.data.rank[r];
    if (rank.kinds[i] === "U") return null;
    return { pipe: this.data.chunks[r][rank.chunk[i]][0], microbatch: rank.microbatch[i] };
  }

  /* Follows the microbatch of a pass or idle time; if it is followed already, follows none. */
  choose(found) {
    const wanted = this.microbatchOf(found);
    const same = wanted && followed && wanted.pipe === followed.pipe && wanted.microbatch === followed.microbatch;
    follow(same ? null : wanted);
  }

  /* The pass or idle time to the left or right of the selected one. Idle time has the number of the pass after it.
     Skips idle time narrower than a pixel, because a measured timeline has very much of it. */
  beside({ r, i, idle }, step) {
    const last = this.data.rank[r].kinds.length;
    if (step > 0 && idle) return { r, i: Math.min(i, last - 1), idle: i === last };
    const next = i + (step > 0 ? 1 : 0), gap = idle ? null : idleBefore(this.data, r, next);
    if (gap && this.x(gap.to) - this.x(gap.from) > 1) return { r, i: next, idle: true };
    return { r, i: Math.max(0, Math.min(i + step, last - 1)), idle: idle && i === 0 };
  }

  /* The pass of a rank that runs at a time, or the next one. */
  goTo(r, time) {
    const rank = this.data.rank[r];
    this.select({ r, i: Math.min(firstEndingAfter(rank, time), rank.kinds.length - 1), idle: false }, true);
  }

  go(key) {
    const data = this.data, at = this.selected;
    if (!at) return this.goTo(Math.floor(this.top / this.pitch), this.from);
    const rank = data.rank[at.r], wait = waitOf(data, at.r, at.i);
    if (key === "Home" || key === "End")
      this.select({ r: at.r, i: key === "Home" ? 0 : rank.kinds.length - 1, idle: false }, true);
    else if (key === "ArrowLeft" || key === "ArrowRight")
      this.select(this.beside(at, key === "ArrowLeft" ? -1 : 1), true);
    else if (key === "Enter") {
      const made = at.idle ? wait && wait.made : rank.from[at.i] >= 0 && [rank.from[at.i], rank.at[at.i]];
      if (made) this.select({ r: made[0], i: made[1], idle: false }, true);
    } else {
      const { from, to } = this.spanOf(at);
      this.goTo(Math.max(0, Math.min(at.r + (key === "ArrowUp" ? -1 : 1), data.ranks - 1)), (from + to) / 2);
    }
  }

  listen() {
    let drag = null;
    const at = event => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("wheel", event => {
      event.preventDefault();
      if (at(event)[0] < LABELS) {
        this.scrollTo(this.top + event.deltaY);
        return redraw();
      }
      const along = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (Math.abs(along) > Math.abs(event.deltaY) || event.shiftKey) move(along / this.plot * (view.to - view.from));
      else this.pointed = Math.max(0, at(event)[1] - AXIS), zoom(1.0015 ** event.deltaY, this.time(at(event)[0]) * this.factor);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", event => {
      drag = [...at(event), false];
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", event => {
      const [x, y] = at(event);
      if (!drag) return this.select(this.find(x, y), false);
      if (drag[2] || Math.hypot(x - drag[0], y - drag[1]) > TOUCH) {
        this.canvas.classList.add("moving");
        $("tip").style.visibility = "hidden";
        this.scrollTo(this.top + drag[1] - y);
        move((drag[0] - x) / this.plot * (view.to - view.from));
        drag = [x, y, true];
      }
    });
    this.canvas.addEventListener("pointerup", event => {
      if (drag && !drag[2]) {
        this.select(this.find(...at(event)), false);
        this.choose(this.selected);
      }
      drag = null;
      this.canvas.classList.remove("moving");
    });
    this.canvas.addEventListener("pointercancel", () => { drag = null; });
    this.canvas.addEventListener("pointerleave", event => {
      if (!drag && event.pointerType !== "touch") this.select(null, false);
    });
    this.canvas.addEventListener("keydown", event => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.shiftKey && event.key.startsWith("Arrow")) {
        if (event.key === "ArrowLeft" || event.key === "ArrowRight")
          move((event.key === "ArrowLeft" ? -0.15 : 0.15) * (view.to - view.from));
        else { this.scrollTo(this.top + (event.key === "ArrowUp" ? -1 : 1) * this.pitch); redraw(); }
      } else if (/^(Arrow(Left|Right|Up|Down)|Home|End|Enter)$/.test(event.key)) this.go(event.key);
      else if (event.key === "f" && this.selected) this.choose(this.selected);
      else return;
      event.preventDefault();
    });
  }
}

