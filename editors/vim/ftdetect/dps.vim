autocmd BufNewFile,BufRead *.dps setfiletype dps
