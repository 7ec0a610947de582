// Lines over time, drawn as SVG.

const NS = 'http://www.w3.org/2000/svg';
const [HEIGHT, LEFT, BOTTOM, TOP] = [190, 46, 18, 8];

/** Pixels from edge to edge of a box's content, so that text is drawn as wide as it is high. */
function widthOf(place) {
  const { paddingLeft, paddingRight } = getComputedStyle(place);
  return Math.max(200, Math.round(place.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight)));
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** The next round number: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((m) => m * power >= value) * power;
}
const short = (n) => (n >= 1000 ? `${+(n / 1000).toFixed(1)}k` : String(+n.toFixed(2)));

/** `series`: name and values, one a second, the newest last; `span` seconds are shown. Counts have no halves. */
export function plot(place, title, series, span, { counts = false } = {}) {
  const width = widthOf(place);
  const top = roundUp(Math.max(1, ...series.flatMap((s) => s.values)));
  const x = (i, n) => LEFT + ((span - n + i) / (span - 1)) * (width - LEFT);
  const y = (v) => TOP + (1 - v / top) * (HEIGHT - TOP - BOTTOM);
  const picture = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
  for (const share of [0, 0.5, 1]) {
    if (counts && !Number.isInteger(top * share)) continue;
    const at = y(top * share);
    picture.append(svg('line', { class: 'rule', x1: LEFT, x2: width, y1: at, y2: at }));
    picture.append(svg('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, short(top * share)));
  }
  for (const minutes of [5, 4, 3, 2, 1]) {
    const at = x(0, minutes * 60);
    if (at >= LEFT) picture.append(svg('text', { x: at, y: HEIGHT - 4 }, `-${minutes} min`));
  }
  series.forEach(({ values }, s) => {
    if (values.length < 2) return;
    const line = values.map((v, i) => `${x(i, values.length).toFixed(1)},${y(v).toFixed(1)}`).join(' L');
    const [from, to] = [x(0, values.length), x(values.length - 1, values.length)];
    picture.append(svg('path', { class: `area series-${s}`, d: `M${from},${y(0)} L${line} L${to},${y(0)} Z` }));
    picture.append(svg('path', { class: `series-${s}`, d: `M${line}` }));
  });
  const head = document.createElement('h2');
  head.append(title);
  series.forEach(({ name, values }, s) => {
    const entry = document.createElement('i');
    entry.className = `series-${s}`;
    entry.append(`${name} ${short(values.at(-1) ?? 0)}`);
    head.append(entry);
  });
  place.replaceChildren(head, picture);
}
