"""What every web page of ours is made of: escaped elements, the frame, numbers for people, errors over HTTP."""
