case $- in *i*) PS1='\w \$ ' ;; esac
