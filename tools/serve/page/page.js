// page.js - shows /locks.json again and again. Names come from other programs and may be anything, so every text goes into
// the page as text (textContent), never as HTML.
'use strict';

const FIRST_ROWS = 200;
const byId = (id) => document.getElementById(id);

const state = { data: null, now: 0, awaySince: 0, order: 'waiters', up: false, all: false, filter: '', paused: false, timer: 0 };

// ---- Texts --------------------------------------------------------------------------------------

// Characters that would be invisible, or would reorder the text after them, are shown as their numbers.
function visible(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
        (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function duration(ms) {
    if (ms === null || ms === undefined)
        return '–';
    const units = [['d', 86400000, 'h', 3600000], ['h', 3600000, 'min', 60000], ['min', 60000, 's', 1000]];
    for (const [word, size, lesser, lesserSize] of units) {
        if (ms < size)
            continue;
        const rest = Math.floor(ms % size / lesserSize);
        return Math.floor(ms / size) + ' ' + word + (rest > 0 ? ' ' + rest + ' ' + lesser : '');
    }
    return ms < 10000 ? (Math.floor(ms / 100) / 10).toFixed(1) + ' s' : Math.floor(ms / 1000) + ' s';
}

function number(n) {
    return n === null || n === undefined ? '–' : n.toLocaleString('en');
}

function clock(ms) {
    const then = new Date(ms), today = new Date(state.now);
    const time = then.toLocaleTimeString();
    return then.toDateString() === today.toDateString() ? time : then.toLocaleDateString() + ' ' + time;
}

function setText(element, text) {
    if (element.textContent !== text)
        element.textContent = text; // else a selection in it would be lost
}

// ---- The table ----------------------------------------------------------------------------------

const words = (lock) => [lock.program, lock.host, lock.pid && 'pid ' + lock.pid].filter(Boolean).map((w) => visible(String(w)));
const known = (value) => value === null || value === undefined ? -1 : value;

function mode(lock) {
    if (lock.mode !== 'shared')
        return 'exclusive';
    return 'shared, ' + number(lock.holders) + (lock.permits ? ' of ' + number(lock.permits) : '');
}

// key, head, text, the value by which it is sorted, whether greater ones come first
const columns = [
    { key: 'name', head: 'Name', text: (l) => visible(l.name), value: (l) => l.name, up: true },
    { key: 'holder', head: 'Holder', text: (l) => words(l).join(', ') || '–', value: (l) => (l.host || '') + ' ' + (l.program || ''), up: true },
    { key: 'held', head: 'Held for', text: (l) => duration(l.held_ms), value: (l) => known(l.held_ms), number: true },
    { key: 'waiters', head: 'Waiting', text: (l) => number(l.waiters), value: (l) => known(l.waiters), number: true, mark: (l) => l.waiters > 0 && 'waits' },
    { key: 'left', head: 'Ends in', text: (l) => duration(l.remaining_ms), value: (l) => l.remaining_ms === null ? Infinity : l.remaining_ms, number: true, up: true, help: 'If the holder does not renew it' },
    { key: 'mode', head: 'Mode', text: mode, value: mode, up: true },
    { key: 'token', head: 'Token', text: (l) => l.token || '–', value: (l) => (l.token || '').padStart(20, '0'), number: true },
];
const column = (key) => columns.find((c) => c.key === key);

function compare(a, b) {
    return a < b ? -1 : a > b ? 1 : 0;
}

// The order of rows with equal values: most waiters first, then held longest, then by name.
function ordered(locks) {
    const first = column(state.order), sign = state.up ? 1 : -1;
    return locks.slice().sort((a, b) =>
        sign * compare(first.value(a), first.value(b)) || known(b.waiters) - known(a.waiters) ||
        known(b.held_ms) - known(a.held_ms) || compare(a.name, b.name));
}

function matching(locks) {
    const wanted = state.filter.toLowerCase();
    if (wanted === '')
        return locks;
    return locks.filter((l) => [l.name, l.host, l.program, String(l.pid)].some((t) => t && t.toLowerCase().includes(wanted)));
}

function newRow() {
    const row = document.createElement('tr');
    for (const c of columns) {
        const cell = document.createElement('td');
        cell.dataset.label = c.head;
        row.append(cell);
    }
    return row;
}

function fillRow(row, lock) {
    columns.forEach((c, i) => {
        const cell = row.children[i], mark = c.mark && c.mark(lock);
        setText(cell, c.text(lock));
        cell.className = [c.key, c.number && 'number', mark].filter(Boolean).join(' ');
    });
    row.children[0].title = lock.name_hex ? 'bytes ' + lock.name_hex : '';
}

function drawRows() {
    const rows = byId('rows'), locks = ordered(matching(state.data.locks));
    const shown = state.all ? locks : locks.slice(0, FIRST_ROWS);
    while (rows.children.length > shown.length)
        rows.lastElementChild.remove();
    while (rows.children.length < shown.length)
        rows.append(newRow());
    shown.forEach((lock, i) => fillRow(rows.children[i], lock));
    const total = state.data.locks.length;
    setText(byId('shown'), state.filter ? number(locks.length) + ' of ' + number(total) + ' match' : '');
    const none = byId('none'), all = byId('all');
    none.hidden = locks.length > 0;
    setText(none, total > 0 ? 'No lock matches.' : state.data.at_ms === null ? '' : 'Nothing is held.');
    all.hidden = shown.length === locks.length && !(state.all && locks.length > FIRST_ROWS);
    setText(all, state.all ? 'Show the first ' + FIRST_ROWS : 'Show all ' + number(locks.length));
}

function drawHeads() {
    columns.forEach((c, i) => {
        const head = byId('heads').children[i];
        if (c.key === state.order)
            head.setAttribute('aria-sort', state.up ? 'ascending' : 'descending');
        else
            head.removeAttribute('aria-sort');
    });
    byId('order').value = state.order;
}

function sortBy(key, turn) {
    state.up = turn && state.order === key ? !state.up : Boolean(column(key).up);
    state.order = key;
    drawHeads();
    draw();
}

// ---- The last hour ------------------------------------------------------------------------------

function svg(name, attributes) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes)
        element.setAttribute(key, attributes[key]);
    return element;
}

// Points that follow each other without a gap make one line.
function lines(values, most) {
    let path = '', pen = false;
    values.forEach((v, i) => {
        if (v === null) {
            pen = false;
            return;
        }
        const y = 40 - 38 * v / most;
        path += pen ? 'L' + (i + 1) + ' ' + y : 'M' + i + ' ' + y + 'L' + (i + 1) + ' ' + y;
        pen = true;
    });
    return svg('path', { class: '', d: path });
}

function chart(key, title, history) {
    const values = history[key], most = Math.max(1, ...values.map((v) => v || 0));
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    const drawing = svg('svg', { viewBox: '0 0 ' + values.length + ' 40', preserveAspectRatio: 'none', role: 'img' });
    const peak = values.some((v) => v !== null) ? 'peak ' + number(Math.max(...values.map((v) => v || 0))) : 'no data';
    drawing.setAttribute('aria-label', title + ' in the last hour, ' + peak);
    history.down.forEach((d, i) => {
        if (d)
            drawing.append(svg('rect', { class: 'down', x: i, y: 0, width: 1, height: 40 }));
    });
    if (key === 'expired') {
        values.forEach((v, i) => {
            if (v)
                drawing.append(svg('rect', { class: key, x: i, y: 40 - 38 * v / most, width: 1, height: 38 * v / most }));
        });
    } else {
        const path = lines(values, most);
        path.setAttribute('class', key);
        drawing.append(path);
    }
    for (const text of [title, key === 'expired' ? number(values.reduce((a, b) => a + b, 0)) + ' in all' : peak]) {
        const span = document.createElement('span');
        span.textContent = text;
        caption.append(span);
    }
    figure.append(caption, drawing);
    return figure;
}

function drawHistory() {
    const history = state.data.history;
    byId('charts').replaceChildren(chart('held', 'Held', history), chart('waiting', 'Waiting', history),
        chart('expired', 'Expired', history));
}

// ---- The whole ----------------------------------------------------------------------------------

function figure(id, text, mark) {
    setText(byId(id), text);
    byId(id).className = mark || '';
}

function trouble() {
    const data = state.data;
    if (state.awaySince)
        return 'mortise serve has not answered this page since ' + clock(state.awaySince) + '. ' + (data ? 'The list is as it was then.' : '');
    if (data.state !== 'down')
        return '';
    const last = data.at_ms === null ? 'It has not answered yet.' : 'The list is of ' + clock(data.at_ms) + '.';
    return 'The backend has not answered since ' + clock(data.since_ms) + ' (' + duration(state.now - data.since_ms) + '). ' + last + ' ' + visible(data.error);
}

function drawState() {
    const away = state.awaySince !== 0;
    const words = { starting: 'Waiting for the backend', up: 'Live', down: 'Backend down' };
    const badge = byId('state'), text = trouble();
    badge.dataset.state = away ? 'away' : state.data.state;
    setText(badge, away ? 'No connection' : state.paused ? 'Paused at ' + clock(state.now) : words[state.data.state]);
    byId('trouble').hidden = text === '';
    setText(byId('trouble'), text);
}

function draw() {
    const data = state.data;
    if (data === null) {
        if (state.awaySince)
            byId('trouble').hidden = false, setText(byId('trouble'), 'mortise serve does not answer.');
        return;
    }
    const lost = data.history.expired.reduce((a, b) => a + b, 0);
    setText(byId('source'), data.driver + ' · ' + visible(data.config) + (data.prefix ? ' · prefix ' + visible(data.prefix) : ''));
    figure('held', data.at_ms === null ? '–' : number(data.held));
    figure('waiting', number(data.waiting), data.waiting > 0 ? 'waits' : '');
    figure('oldest', duration(data.oldest_ms));
    figure('expired', number(lost), lost > 0 ? 'bad' : '');
    document.title = number(data.held) + ' held' + (data.waiting > 0 ? ', ' + number(data.waiting) + ' waiting' : '') + ' – Mortise';
    drawState();
    drawHistory();
    drawRows();
    document.body.dataset.at = data.at_ms;
}

async function refresh() {
    clearTimeout(state.timer);
    try {
        const response = await fetch('/locks.json', { cache: 'no-store', signal: AbortSignal.timeout(20000) });
        if (!response.ok)
            throw new Error('HTTP ' + response.status);
        state.now = Date.parse(response.headers.get('Date')) || Date.now();
        state.data = await response.json();
        state.awaySince = 0;
    } catch (error) {
        state.awaySince = state.awaySince || Date.now();
        state.now = Date.now();
    }
    draw();
    if (!state.paused && !document.hidden)
        state.timer = setTimeout(refresh, state.data ? Math.max(1000, state.data.interval_ms) : 2000);
}

function begin() {
    for (const c of columns) {
        const head = document.createElement('th'), button = document.createElement('button'), option = document.createElement('option');
        head.scope = 'col';
        head.className = c.number ? 'number' : '';
        head.title = c.help || '';
        button.type = 'button';
        button.textContent = c.head;
        button.addEventListener('click', () => sortBy(c.key, true));
        head.append(button);
        byId('heads').append(head);
        option.value = c.key;
        option.textContent = c.head;
        byId('order').append(option);
    }
    drawHeads();
    byId('order').addEventListener('change', (event) => sortBy(event.target.value, false));
    byId('filter').addEventListener('input', (event) => {
        state.filter = event.target.value;
        draw();
    });
    byId('all').addEventListener('click', () => {
        state.all = !state.all;
        draw();
    });
    byId('pause').addEventListener('click', () => {
        state.paused = !state.paused;
        byId('pause').setAttribute('aria-pressed', String(state.paused));
        setText(byId('pause'), state.paused ? 'Continue' : 'Pause');
        if (state.paused)
            clearTimeout(state.timer), state.data && drawState();
        else
            refresh();
    });
    document.addEventListener('visibilitychange', () => document.hidden ? clearTimeout(state.timer) : state.paused || refresh());
    document.addEventListener('keydown', (event) => {
        if (event.key === '/' && !['INPUT', 'SELECT'].includes(document.activeElement.tagName)) {
            event.preventDefault();
            byId('filter').focus();
        } else if (event.key === 'Escape' && document.activeElement === byId('filter')) {
            byId('filter').value = state.filter = '';
            draw();
        }
    });
    refresh();
}

begin();
