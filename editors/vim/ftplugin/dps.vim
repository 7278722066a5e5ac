if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal comments=:# commentstring=#\ %s
setlocal expandtab shiftwidth=4 softtabstop=4

" = formats as `dpc fmt` does; :make proves, and its errors are understood.
setlocal equalprg=dpc\ fmt\ -
setlocal makeprg=dpc\ %:S
setlocal errorformat=%f:%l:%c:\ %trror:\ %m,%f:%l:%c:\ %tote:\ %m

let b:undo_ftplugin = 'setlocal comments< commentstring< expandtab< shiftwidth< softtabstop< equalprg< makeprg< errorformat<'
