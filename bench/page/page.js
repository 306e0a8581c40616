// SPDX-License-Identifier: MIT
'use strict';
// What the pages share. Their data is a script element with the id 'data'.
const data = JSON.parse(document.getElementById('data').textContent);
const el = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const byId = id => document.getElementById(id);
const gib = bytes => (bytes / 2 ** 30).toFixed(2) + ' GiB';
const mib = bytes => bytes == null ? '–' : Math.round(bytes / 2 ** 20).toLocaleString('en') + ' MiB';
const count = n => n == null ? '–' : n.toLocaleString('en');
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const palette = ['#3b74c4', '#7fb0ee', '#c4702b', '#eeaf7a', '#3f9166', '#8ccfa9', '#8a5fbf', '#c4a8e4'];

/** Verdicts {kind: good|bad|note, headline, explanation}, each a box. */
function showVerdicts(parent, verdicts) {
  for (const v of verdicts) {
    const box = el('div', undefined, 'verdict ' + v.kind);
    box.append(el('b', v.headline), el('span', v.explanation));
    parent.append(box);
  }
}

/** A canvas in a captioned figure. */
function addFigure(parent, title, explanation, height) {
  const figure = el('figure');
  const caption = el('figcaption');
  caption.append(el('b', title), document.createTextNode(' ' + explanation));
  const frame = el('div', undefined, 'canvas');
  frame.style.height = height + 'px';
  const canvas = el('canvas');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', title + '. The tables have every figure.');
  frame.append(canvas);
  figure.append(caption, frame);
  parent.append(figure);
  return canvas;
}

const axis = (title, more) => ({
  title: { display: true, text: title, color: colour('--faint') },
  ticks: { color: colour('--faint') }, grid: { color: colour('--line') }, ...more,
});

/** Options that all charts have; follow the reader's light or dark. */
const chartOptions = (scales, more) => ({
  responsive: true, maintainAspectRatio: false, animation: false,
  color: colour('--ink'), borderColor: colour('--line'), scales,
  plugins: { legend: { position: 'bottom', labels: { boxWidth: 12, color: colour('--ink') } } }, ...more,
});

/** A long name takes two lines, so that the bars keep their room on a phone. */
const barLabel = name => {
  const cut = name.length > 16 ? name.slice(name.length / 2 - 3).search(/[_ ]/) : -1;
  if (cut < 0) return name;
  const at = Math.floor(name.length / 2 - 3) + cut + 1;
  return [name.slice(0, at), name.slice(at)];
};

/** Horizontal bars: labels, and datasets {label, data}. */
function barChart(parent, { title, explanation, unit, labels, datasets, max, logarithmic }) {
  const height = labels.length * (14 * datasets.length + 12) + 90;
  const canvas = addFigure(parent, title, explanation, height);
  if (typeof Chart === 'undefined') return;
  new Chart(canvas, {
    type: 'bar',
    data: {
      labels: labels.map(barLabel),
      datasets: datasets.map((d, i) => ({ backgroundColor: palette[i % palette.length], ...d })),
    },
    options: chartOptions({
      x: axis(unit, logarithmic ? { type: 'logarithmic' } : { min: 0, max }),
      y: { ticks: { color: colour('--ink'), autoSkip: false }, grid: { display: false } },
    }, { indexAxis: 'y' }),
  });
}

/** Lines over numbers: datasets {label, data: [{x, y}]}. */
function lineChart(parent, { title, explanation, xTitle, yTitle, datasets, height, logarithmicX, logarithmicY }) {
  const canvas = addFigure(parent, title, explanation, height ?? 320);
  if (typeof Chart === 'undefined') return;
  new Chart(canvas, {
    type: 'line',
    data: {
      datasets: datasets.map((d, i) => ({
        borderColor: palette[(2 * i) % palette.length], backgroundColor: palette[(2 * i) % palette.length],
        borderWidth: 2, pointRadius: 2, ...d,
      })),
    },
    options: chartOptions({
      x: axis(xTitle, { type: logarithmicX ? 'logarithmic' : 'linear' }),
      y: axis(yTitle, logarithmicY ? { type: 'logarithmic' } : { min: 0 }),
    }),
  });
}

/** Columns are [title, row => text]. A row with an error shows it behind its first `kept` cells. */
function fillTable(table, columns, rows, kept = 1) {
  const head = table.createTHead().insertRow();
  for (const [title] of columns) head.append(el('th', title));
  const body = table.createTBody();
  for (const r of rows) {
    const line = body.insertRow();
    const cells = r.error ? columns.slice(0, kept) : columns;
    for (const [, pick] of cells) line.append(el('td', pick(r)));
    if (r.error) {
      const cell = el('td', r.error, 'failed');
      cell.colSpan = columns.length - kept;
      line.append(cell);
    }
  }
}

/** Names and values; a command is set as code. */
function fillDefinitions(list, entries) {
  for (const [key, value] of entries) {
    if (value == null) continue;
    list.append(el('dt', key));
    const cell = el('dd');
    cell.append(key === 'Command' ? el('code', value) : document.createTextNode(value));
    list.append(cell);
  }
}
