"""JavaScript that gradio runs in the browser, one function per text."""

OPENED = """(tab) => { sessionStorage.setItem('harness', tab);
  if (location.search) history.replaceState(null, '', location.pathname);
  const status = document.getElementById('status');
  status.setAttribute('role', 'status');  // one that stays, or nothing is read out
  status.onclick = (e) => { if (e.target.closest('.dismiss')) status.querySelector('.message').hidden = true; };
  document.getElementById('prompt').oninput = (e) => sessionStorage.setItem('prompt', e.target.value);
  document.addEventListener('keydown', (e) => {  // gradio would open the list again that Tab has just left
    if (e.key === 'Tab' && e.target.role === 'combobox') e.stopPropagation();
    if (e.key === 'Enter' && e.target.role === 'combobox') setTimeout((box) => {  // and let the focus fall
      if (document.activeElement !== document.body) return;
      box.focus({preventScroll: true});
      box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})) }, 50, e.target) }, true);
  let last, begun;  // where the focus was; the button that began what runs
  document.addEventListener('focusin', (e) => { last = e.target });
  for (const name of ['stop', 'enough']) new MutationObserver(() => {
    const stop = document.getElementById(name), now = document.activeElement;
    if (!last || (now !== document.body && !now.disabled)) return;
    if (!stop.disabled && last.disabled) { begun = last; stop.focus({preventScroll: true}) }
    else if (stop.disabled && last === stop && begun) begun.focus({preventScroll: true});
  }).observe(document.getElementById(name), {attributes: true, attributeFilter: ['disabled']});
  let missed = 0;
  const beat = setInterval(() => fetch('gradio_api/app_id', {cache: 'no-store'}).then(() => { missed = 0 }, () => {
    if (++missed < 2) return;
    clearInterval(beat);
    document.body.classList.add('gone');  // hides gradio's own message
    status.querySelector('.message').hidden = false;
    status.querySelector('.message').textContent = 'The server has stopped: start it again and reload; every branch is kept.';
  }), 1500);
  for (const set of document.querySelectorAll('fieldset')) set.setAttribute('aria-label', set.querySelector('span').textContent); }"""
BACK = "() => { if (document.activeElement === document.body) document.getElementById('%s').focus({preventScroll: true}) }"
RECALL = """() => { const fresh = new URLSearchParams(location.search).has('new');
  if (fresh) sessionStorage.removeItem('prompt');  // a tab opened from another one has a copy of what was typed there
  return [fresh ? 'new' : sessionStorage.getItem('harness') || '', sessionStorage.getItem('prompt')]; }"""
