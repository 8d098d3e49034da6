// The map, a canvas that one can move and zoom. Nothing here asks the service for anything.

export const COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#c79a00", "#a6761d", "#2b7bba", "#b2182b", "#5e7f8a"];
const NEAR = 14; // pixels within which a point is meant

export class Map {
  constructor(canvas, tip, open) {
    Object.assign(this, { canvas, tip, open, points: null, hidden: new Set(), marked: null, scale: 1, x: 0, y: 0, held: new window.Map() });
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.release(event, name === "pointerup"));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(points, types) {
    Object.assign(this, { points, types, marked: null });
    this.whole();
  }

  mark(points) {
    this.marked = points;
    this.draw();
  }

  whole() {
    const { x, y } = this.points || { x: [], y: [] };
    const low = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
    const { width, height } = this.canvas.getBoundingClientRect();
    if (x.length) {
      const [left, right, bottom, top] = [low(x), high(x), low(y), high(y)];
      this.scale = 0.92 * Math.min(width / (right - left || 1), height / (top - bottom || 1));
      this.x = width / 2 - (this.scale * (left + right)) / 2;
      this.y = height / 2 + (this.scale * (bottom + top)) / 2;
    }
    this.draw();
  }

  place(points, i) {
    return [this.x + this.scale * points.x[i], this.y - this.scale * points.y[i]];
  }

  zoom(factor, atX = this.canvas.clientWidth / 2, atY = this.canvas.clientHeight / 2) {
    this.x = atX - factor * (atX - this.x);
    this.y = atY - factor * (atY - this.y);
    this.scale *= factor;
    this.draw();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.held.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.moved = this.held.size > 1;
  }

  move(event) {
    const before = this.held.get(event.pointerId);
    if (!before) return this.hover(event.offsetX, event.offsetY);
    const now = [event.offsetX, event.offsetY];
    if (this.held.size === 1) {
      this.moved ||= Math.hypot(now[0] - before[0], now[1] - before[1]) > 3;
      if (!this.moved) return undefined;
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
    } else {
      const other = [...this.held].find(([id]) => id !== event.pointerId)[1];
      const apart = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
      this.zoom(apart(now) / apart(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    }
    this.held.set(event.pointerId, now);
    return this.draw();
  }

  release(event, chosen) {
    this.held.delete(event.pointerId);
    if (!chosen || this.moved || this.held.size) return;
    const found = this.nearest(event.offsetX, event.offsetY);
    if (found) this.open(found.points.id[found.i], this.types[found.points.type[found.i]]);
  }

  key(event) {
    const step = 40;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) {
      this.x += moves[event.key][0];
      this.y += moves[event.key][1];
      this.draw();
    } else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.whole();
    else return;
    event.preventDefault();
  }

  nearest(atX, atY) {
    let best = null;
    let least = NEAR;
    for (const points of [this.points, this.marked]) {
      if (!points) continue;
      for (let i = 0; i < points.id.length; i += 1) {
        if (points === this.points && this.hidden.has(points.type[i])) continue;
        const [x, y] = this.place(points, i);
        const far = Math.hypot(x - atX, y - atY);
        if (far < least) [best, least] = [{ points, i, x, y }, far];
      }
    }
    return best;
  }

  hover(atX, atY) {
    const found = this.nearest(atX, atY);
    this.tip.hidden = !found;
    if (!found) return;
    const name = found.points.name[found.i] || found.points.id[found.i];
    this.tip.textContent = `${name} (${this.types[found.points.type[found.i]]})`;
    const left = Math.min(found.x + 10, this.canvas.clientWidth - this.tip.offsetWidth);
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${Math.max(found.y - 32, 0)}px`;
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * dense);
    this.canvas.height = Math.round(height * dense);
    const pen = this.canvas.getContext("2d");
    pen.scale(dense, dense);
    if (!this.points) return;
    const size = this.points.id.length > 1500 ? 2 : 3;
    pen.globalAlpha = this.marked ? 0.35 : 0.75;
    for (let i = 0; i < this.points.id.length; i += 1) {
      if (this.hidden.has(this.points.type[i])) continue;
      pen.fillStyle = COLOURS[this.points.type[i] % COLOURS.length];
      const [x, y] = this.place(this.points, i);
      pen.beginPath();
      pen.arc(x, y, size, 0, 7);
      pen.fill();
    }
    if (!this.marked) return;
    pen.globalAlpha = 1;
    const ink = getComputedStyle(document.body).color;
    pen.strokeStyle = ink;
    for (let i = this.marked.id.length - 1; i >= 0; i -= 1) {
      const [x, y] = this.place(this.marked, i);
      pen.fillStyle = COLOURS[this.marked.type[i] % COLOURS.length];
      pen.beginPath();
      pen.arc(x, y, i ? 4.5 : 7, 0, 7);
      pen.fill();
      pen.stroke();
    }
    const [x, y] = this.place(this.marked, 0);
    pen.fillStyle = ink;
    pen.font = "600 13px system-ui, sans-serif";
    pen.fillText(this.marked.name[0] || this.marked.id[0], x + 11, y + 4);
  }
}
