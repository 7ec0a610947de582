// The report page's script: draws the tables and plots from the embedded data.
'use strict';
const { report, kinds, ops, dtypes, candle, benches, mutation } = JSON.parse(
  document.getElementById('data').textContent,
);
const VERDICTS = ['exact', 'within', 'closer', 'differs', 'unsupported', 'failed'];
const SIGN = { exact: '=', within: '≈', closer: '≲', differs: '≠', unsupported: '–', failed: '✗' };
const WORDS = {
  exact: 'bit for bit',
  within: 'within the bound',
  closer: 'closer to the exact result',
  differs: 'deliberate difference',
  unsupported: 'unsupported',
  failed: 'failed',
};
const $ = (id) => document.getElementById(id);
function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {}))
    if (v !== undefined && v !== false) k in e && k !== 'role' ? (e[k] = v) : e.setAttribute(k, v === true ? '' : v);
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}
function svg(tag, props, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(props || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
const unit = (c) => (c.against === 'torch' || c.against === 'models' ? ' of the largest' : ' ulp');
const number = (v) =>
  v === null || v === undefined
    ? 'different'
    : v === 0
      ? '0'
      : v < 0.01 || v >= 1e5
        ? v.toExponential(1)
        : String(Number(v.toPrecision(3)));
const tag = (v) => el('span', { className: 'tag v-' + v }, SIGN[v] + ' ' + WORDS[v]);
const worst = (cells) =>
  cells.reduce((w, c) => (VERDICTS.indexOf(c.verdict) > VERDICTS.indexOf(w) ? c.verdict : w), 'exact');
function grid(head, rows, caption) {
  const right = head.map(
    (_, i) => rows.length > 0 && rows.every((r) => typeof r[i] === 'number' || /^[\d.e+-]+$/.test(r[i])),
  );
  return el(
    'table',
    {},
    caption && el('caption', { className: 'skip' }, caption),
    el(
      'thead',
      {},
      el('tr', {}, ...head.map((h, i) => el('th', { scope: 'col', className: right[i] ? 'num' : '' }, h))),
    ),
    el(
      'tbody',
      {},
      ...rows.map((r) =>
        el(
          'tr',
          {},
          ...r.map((c, i) => el('td', { className: right[i] ? 'num' : '' }, c instanceof Node ? c : String(c))),
        ),
      ),
    ),
  );
}

// Summary
const total = report.cells.reduce((n, c) => n + c.cases, 0);
const joined = report.devices.some((d) => d.measured);
$('about').textContent =
  total.toLocaleString('en') +
  ' cases on ' +
  (report.devices.map((d) => d.name).join(', ') || 'no device') +
  '; ' +
  (joined ? 'measured apart, the latest ' : '') +
  report.date.slice(0, 16).replace('T', ' ') +
  ' UTC, commit ' +
  (report.commit || 'unknown') +
  ', wick ' +
  report.wick +
  (joined ? '; Devices, below, tells where and when each was measured' : ', Node ' + report.node + ', ' + report.host) +
  (report.complete ? '' : '. The run was stopped early: what is here holds, what is missing was not measured.');
const SIDES = {
  reference: 'the reference in double precision',
  candle: "Candle's CUDA kernels",
  torch: 'PyTorch',
  models: 'transformers, whole models',
};
for (const d of report.devices) {
  const sides = Object.keys(SIDES)
    .map((against) => [against, report.cells.filter((c) => c.device === d.name && c.against === against)])
    .filter(([, cells]) => cells.length);
  $('summary').append(
    el(
      'div',
      { className: 'card' },
      el('h3', {}, d.name, el('span', { className: 'kind' }, kinds[d.name])),
      ...sides.flatMap(([against, cells]) => {
        const counts = VERDICTS.map((v) => [v, cells.reduce((n, c) => n + (c.counts[v] || 0), 0)]).filter(
          ([, n]) => n > 0,
        );
        const all = counts.reduce((n, [, k]) => n + k, 0);
        return [
          el('h4', {}, all.toLocaleString('en') + (all === 1 ? ' case' : ' cases') + ' against ' + SIDES[against]),
          el(
            'div',
            { className: 'bar', 'aria-hidden': 'true' },
            ...counts.map(([v, n]) => el('span', { className: 'f-' + v, style: 'flex: ' + Math.max(n, all / 80) })),
          ),
          el('ul', {}, ...counts.map(([v, n]) => el('li', {}, n.toLocaleString('en') + ' ', tag(v)))),
        ];
      }),
    ),
  );
}

// Filters
const state = { device: '', against: '', family: '', text: '', verdicts: new Set(VERDICTS) };
const select = (label, key, values) =>
  el(
    'label',
    {},
    label,
    el(
      'select',
      {
        onchange: (e) => {
          state[key] = e.target.value;
          draw();
        },
      },
      el('option', { value: '' }, 'all'),
      ...values.map((v) => el('option', { value: v }, v)),
    ),
  );
$('filters').append(
  select(
    'Device',
    'device',
    report.devices.map((d) => d.name),
  ),
  select('Against', 'against', [...new Set(report.cells.map((c) => c.against))]),
  select('Family', 'family', [...new Set(ops.map((o) => o.family))]),
  el(
    'label',
    {},
    'Op',
    el('input', {
      type: 'search',
      placeholder: 'name or formula',
      oninput: (e) => {
        state.text = e.target.value.toLowerCase();
        draw();
      },
    }),
  ),
  el(
    'fieldset',
    {},
    el('legend', {}, 'Status'),
    ...VERDICTS.map((v) =>
      el(
        'label',
        { className: 'chip v-' + v },
        el('input', {
          type: 'checkbox',
          checked: true,
          onchange: (e) => {
            state.verdicts[e.target.checked ? 'add' : 'delete'](v);
            draw();
          },
        }),
        SIGN[v] + ' ' + WORDS[v],
      ),
    ),
  ),
);
$('filters').onsubmit = (e) => e.preventDefault();

// Matrix: one stop for the Tab key, arrows move inside.
const byOp = Map.groupBy
  ? Map.groupBy(report.cells, (c) => c.op)
  : report.cells.reduce((m, c) => m.set(c.op, (m.get(c.op) || []).concat(c)), new Map());
function chosen(op, dtype) {
  return (byOp.get(op) || []).filter(
    (c) =>
      c.dtype === dtype &&
      (!state.device || c.device === state.device) &&
      (!state.against || c.against === state.against),
  );
}
function cellButton(op, dtype) {
  const cells = chosen(op.name, dtype);
  if (!cells.length) return undefined;
  const v = worst(cells);
  if (!state.verdicts.has(v)) return undefined;
  const ulps = cells.filter((c) => c.against === 'reference' || c.against === 'candle');
  const most = ulps.some((c) => c.error === null) ? null : Math.max(0, ...ulps.map((c) => c.error));
  const label =
    op.name +
    ' ' +
    dtype +
    ': ' +
    WORDS[v] +
    ', ' +
    cells.reduce((n, c) => n + c.cases, 0) +
    ' cases' +
    (ulps.length ? ', largest error ' + number(most) + ' ulp' : '');
  return el(
    'button',
    {
      type: 'button',
      className: 'v-' + v,
      tabIndex: -1,
      title: label,
      'aria-label': label,
      onclick: () => open(op, dtype),
    },
    SIGN[v],
  );
}
function draw() {
  const body = el('tbody', {});
  let count = 0;
  const columns = dtypes.filter((d) => report.cells.some((c) => c.dtype === d));
  for (const family of [...new Set(ops.map((o) => o.family))]) {
    if (state.family && family !== state.family) continue;
    const rows = [];
    for (const op of ops.filter((o) => o.family === family)) {
      if (state.text && !(op.name + ' ' + op.formula).toLowerCase().includes(state.text)) continue;
      const buttons = columns.map((d) => cellButton(op, d));
      if (buttons.every((b) => !b)) continue;
      count++;
      rows.push(
        el(
          'tr',
          {},
          el('th', { scope: 'row', title: op.formula }, op.name),
          ...buttons.map((b) => el('td', {}, b || '')),
        ),
      );
    }
    if (rows.length)
      body.append(
        el('tr', { className: 'family' }, el('th', { colSpan: columns.length + 1, scope: 'rowgroup' }, family)),
        ...rows,
      );
  }
  $('matrix').replaceChildren(
    el(
      'table',
      {},
      el(
        'thead',
        {},
        el('tr', {}, el('th', { scope: 'col' }, 'op'), ...columns.map((d) => el('th', { scope: 'col' }, d))),
      ),
      body,
    ),
  );
  const first = $('matrix').querySelector('button');
  if (first) first.tabIndex = 0;
  $('shown').textContent =
    count + ' of ' + ops.length + ' ops shown. In the matrix, arrow keys move and Enter opens a cell.';
  plot();
}
$('matrix').addEventListener('keydown', (e) => {
  const at = e.target.closest('td');
  if (!at || !['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End'].includes(e.key)) return;
  e.preventDefault();
  const row = at.parentElement;
  const rows = [...row.parentElement.children].filter((r) => r.querySelector('button'));
  const inRow = (r, wanted) => {
    const all = [...r.querySelectorAll('button')];
    return all.reduce(
      (a, b) => (Math.abs(b.parentElement.cellIndex - wanted) < Math.abs(a.parentElement.cellIndex - wanted) ? b : a),
      all[0],
    );
  };
  const here = [...row.querySelectorAll('button')];
  const k = here.indexOf(e.target);
  const r = rows.indexOf(row);
  const to =
    e.key === 'ArrowLeft'
      ? here[k - 1]
      : e.key === 'ArrowRight'
        ? here[k + 1]
        : e.key === 'Home'
          ? here[0]
          : e.key === 'End'
            ? here.at(-1)
            : rows[r + (e.key === 'ArrowUp' ? -1 : 1)] && inRow(rows[r + (e.key === 'ArrowUp' ? -1 : 1)], at.cellIndex);
  if (to) {
    e.target.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
    to.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
});

// Detail
let opener;
function open(op, dtype) {
  opener = document.activeElement;
  const cells = (byOp.get(op.name) || []).filter((c) => c.dtype === dtype);
  const layouts = [...new Set(cells.flatMap((c) => Object.keys(c.layouts || {})))];
  const withLayouts = cells.filter((c) => c.layouts);
  const origin =
    op.candle.none !== undefined
      ? op.candle.none
      : 'candle-kernels/src/' +
        op.candle.file +
        ', lines ' +
        op.candle.lines[0] +
        ' to ' +
        op.candle.lines[1] +
        ': ' +
        op.candle.symbols.join(', ') +
        ' (' +
        candle +
        ')';
  const why = [...new Set(cells.flatMap((c) => c.why || []))];
  const facts = [
    ['Computes', op.formula],
    ['Bound', op.bounds[dtype] === undefined ? '' : op.bounds[dtype] === 0 ? 'bit for bit' : op.bounds[dtype] + ' ulp'],
    ['Gradient', op.gradient],
    ['Candle', origin],
    ['Differs', op.differs || ''],
    ['Without', op.without || ''],
  ].filter(([, v]) => v);
  $('detail').replaceChildren(
    ...[
      el(
        'div',
        { className: 'head' },
        el('h2', { id: 'detail-title' }, op.name + ' in ' + dtype),
        el('button', { type: 'button', className: 'close', onclick: () => $('detail').close() }, 'Close'),
      ),
      el('dl', {}, ...facts.flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)])),
      el('h3', {}, 'Measured'),
      el(
        'div',
        { className: 'scroll', tabIndex: 0, role: 'group', 'aria-label': 'Measured' },
        grid(
          ['device', 'against', 'cases', 'status', 'largest error', 'bound', 'their own error'],
          cells.map((c) => [
            c.device,
            c.against,
            c.cases,
            tag(c.verdict),
            number(c.error) + unit(c),
            number(c.bound) + unit(c),
            c.theirs === undefined ? '' : number(c.theirs) + ' ulp',
          ]),
        ),
      ),
      ...(withLayouts.length
        ? [
            el('h3', {}, 'Largest error by layout (ulp)'),
            el(
              'div',
              { className: 'scroll', tabIndex: 0, role: 'group', 'aria-label': 'Largest error by layout' },
              grid(
                ['device', ...layouts],
                withLayouts.map((c) => [
                  c.device,
                  ...layouts.map((l) => (c.layouts[l] ? number(c.layouts[l].ulp) : '')),
                ]),
              ),
            ),
          ]
        : []),
      ...(why.length ? [el('h3', {}, 'Reasons'), el('ul', {}, ...why.map((w) => el('li', {}, w)))] : []),
      ...(op.source ? [el('h3', {}, 'Our source: ' + op.source.file), el('pre', { tabIndex: 0 }, op.source.text)] : []),
      el('h3', {}, 'Devices'),
      el(
        'ul',
        {},
        ...report.devices
          .filter((d) => cells.some((c) => c.device === d.name))
          .map((d) =>
            el(
              'li',
              {},
              d.name +
                ' (' +
                kinds[d.name] +
                '): ' +
                d.description +
                ', measured ' +
                when(d) +
                (d.stale && d.stale[op.name] ? ', before ' + d.stale[op.name] + ' changed: to be measured again' : ''),
            ),
          ),
      ),
    ],
  );
  $('detail').showModal();
  $('detail').scrollTop = 0;
}
$('detail').addEventListener('click', (e) => {
  if (e.target === $('detail')) $('detail').close();
});
$('detail').addEventListener('close', () => opener && opener.focus && opener.focus());

// Plot: each cell of the matrix by its bound and its largest error, both in ulp, on logarithmic scales.
function plot() {
  const cells = report.cells.filter(
    (c) =>
      c.against === 'reference' &&
      c.bound > 0 &&
      (c.error === null || c.error > 0) &&
      c.verdict !== 'unsupported' &&
      (!state.device || c.device === state.device),
  );
  const over = cells.filter((c) => c.error === null || c.error > c.bound).length;
  $('plot-text').textContent = cells.length
    ? cells.length +
      ' cells of op, dtype and device whose bound and largest error against the reference are above 0. The dashed line is the bound; ' +
      over +
      ' lie above it.'
    : 'No cell has both a bound and an error.';
  const [w, h, m] = [Math.max(320, Math.min(900, $('plot').clientWidth || 800)), 340, 46];
  const most = Math.max(2, ...cells.map((c) => c.bound)) * 4;
  const low = 2 ** -3;
  const held = (v) => Math.min(Math.max(v === null ? most : v, low), most);
  const lg = Math.log2;
  const x = (v) => m + 8 + ((lg(v) + 1) / (lg(most) + 1)) * (w - m - 34);
  const y = (v) => h - m - ((lg(v) - lg(low)) / (lg(most) - lg(low))) * (h - m - 28);
  const ticks = [];
  for (let t = low; t <= most; t *= 4) ticks.push(t);
  const jitter = (c) => ((c.op.length * 7 + c.dtype.length * 13 + c.op.charCodeAt(0)) % 11) / 11 - 0.5;
  const dot = (c) => {
    const d = svg(
      'circle',
      { class: 'p-' + c.verdict, cx: x(held(c.bound)) + jitter(c) * 12, cy: y(held(c.error)), r: 4 },
      svg(
        'title',
        {},
        c.op + ' ' + c.dtype + ' on ' + c.device + ': ' + number(c.error) + ' of ' + number(c.bound) + ' ulp',
      ),
    );
    d.onclick = () => {
      const op = ops.find((o) => o.name === c.op);
      if (op) open(op, c.dtype);
    };
    return d;
  };
  $('plot').replaceChildren(
    svg(
      'svg',
      { width: w, height: h, viewBox: '0 0 ' + w + ' ' + h, role: 'img', 'aria-label': $('plot-text').textContent },
      ...ticks.flatMap((t) => [
        svg('line', { class: 'axis', x1: m, x2: w, y1: y(t), y2: y(t) }),
        svg('text', { x: m - 6, y: y(t) + 4, 'text-anchor': 'end' }, String(t)),
        ...(t >= 0.5 ? [svg('text', { x: x(t), y: h - 26, 'text-anchor': 'middle' }, String(t))] : []),
      ]),
      svg('text', { x: w / 2, y: h - 6, 'text-anchor': 'middle' }, 'bound (ulp)'),
      svg('text', { x: m, y: 12 }, 'error (ulp)'),
      svg('line', { class: 'limit', x1: x(0.5), y1: y(0.5), x2: x(most), y2: y(most) }),
      ...cells.map(dot),
    ),
  );
}

// Bandwidth
for (const b of benches.filter((k) => k.results.length)) {
  $('bench').hidden = false;
  const most = Math.max(...b.results.map((r) => r.gbPerSecond));
  const bar = (r) =>
    svg(
      'svg',
      { width: 220, height: 14, 'aria-hidden': 'true' },
      svg('rect', { class: 'track', width: 220, height: 14, rx: 3 }),
      svg('rect', { class: 'band', width: (220 * r.gbPerSecond) / most, height: 14, rx: 3 }),
    );
  const title = b.device + (b.date ? ', ' + b.date.slice(0, 10) : '');
  $('bench-plot').append(
    el('h3', {}, title),
    el(
      'div',
      { className: 'scroll', tabIndex: 0, role: 'group', 'aria-label': 'Bandwidth on ' + title },
      grid(
        ['op', 'GB/s', 'of a copy', ''],
        b.results.map((r) => [
          r.name,
          Math.round(r.gbPerSecond),
          r.ofCopy ? Math.round(r.ofCopy * 100) + '%' : '',
          bar(r),
        ]),
        'Bandwidth on ' + title,
      ),
    ),
  );
}

// Devices, mutants
function when(d) {
  const m = d.measured || report;
  return m.date.slice(0, 10) + ', commit ' + (m.commit || 'unknown') + ', ' + m.host;
}
const fresh = (d) =>
  d.stale ? Object.keys(d.stale).length + ' ops measured before a change' : 'as the sources are now';
$('devices').append(
  grid(
    ['device', 'kind', 'what', 'measured', ...(joined ? ['numbers'] : [])],
    [
      ...report.devices.map((d) => [d.name, kinds[d.name], d.description, when(d), ...(joined ? [fresh(d)] : [])]),
      ...report.missing.map((d) => [d.name, '', 'not here: ' + d.why.split('\n')[0], '', ...(joined ? [''] : [])]),
    ],
    'Devices',
  ),
);
if (mutation) {
  $('mutants').hidden = false;
  const left = mutation.results.filter((r) => !r.killed);
  $('mutants-text').textContent =
    'Kernels changed on purpose, one change at a time: the suite on the simulation noticed ' +
    mutation.killed +
    ' of ' +
    mutation.total +
    (mutation.notRun ? '; ' + mutation.notRun + ' more that the rules give are not judged by the whole suite' : '') +
    ' (' +
    mutation.date.slice(0, 10) +
    ', commit ' +
    (mutation.commit || 'unknown') +
    ').' +
    (left.length ? ' Not noticed:' : '');
  $('survivors').append(...left.map((r) => el('li', {}, r.name + ': ' + (r.reason || 'no reason known'))));
}
$('unproved').append(
  ...(report.unproved.length ? report.unproved : ['Nothing: AMD hardware took part.']).map((u) => el('li', {}, u)),
);
draw();
addEventListener('resize', plot);
